// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/encoded_rows.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/tile_stream.hpp>
#include <cellar/attention/detail/unpacked_rows.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/shift/rotary_angles.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// The keys of a layer that are stored without positions: rotated as they are read, each by the position of its cell.
template <class Rows>
struct RotatedRows {
    using element_type = float;

    Rows rows; ///< as stored
    const RotaryAngles* angles;
};

/// Every row is read as floats and rotated. The angles of a tile's positions are computed once for all heads that go
/// through it. Keys only: nothing for values is here.
template <class Rows>
class TileRows<RotatedRows<Rows>> {
public:
    struct Kernels {
        typename TileRows<Rows>::Kernels stored;
        RotationKernels rotation;

        explicit Kernels(Instructions instructions) : stored{instructions}, rotation{rotation_kernels(instructions)} {}
    };

    /// See the one for `StoredRows`.
    TileRows(const RotatedRows<Rows>& source, const Kernels& kernels, std::int64_t rows, ScratchArrays& arrays)
        : kernels_{kernels},
          source_{*source.angles},
          stored_{source.rows, kernels.stored, rows, arrays},
          block_cosines_{arrays.take<float>(source_.stride())},
          block_sines_{arrays.take<float>(source_.stride())},
          angles_{.cosines = arrays.take<float>(tile_cells * source_.stride()),
                  .sines = arrays.take<float>(tile_cells * source_.stride()),
                  .stride = source_.stride(),
                  .count = source_.count(),
                  .first = source_.first(0),
                  .second = source_.second(0),
                  .neighbours = source_.neighbours()} {}

    std::int64_t wide() const { return stored_.wide(); }

    /// Rows are found without what a format rotates.
    static void rotate_queries(float* /*q*/, int /*rows*/) {}
    void start_queries(const float* q, int /*rows*/, int /*rows_of_head*/) { q_ = q; }

    void start(const Tile& tile, const Tile* next) {
        stored_.start(tile, next);
        tile_ = &tile;
        next_ = next;
        std::int32_t block = -1;
        for (int i = 0; i < tile.count; ++i) {
            const std::int32_t position = tile.positions[i];
            if (position / RotaryAngles::block != block) {
                block = position / RotaryAngles::block;
                source_.of_block(block, block_cosines_, block_sines_);
            }
            const std::int32_t place = position % RotaryAngles::block;
            kernels_.rotation.add_angles(block_cosines_, block_sines_, source_.cosines(place), source_.sines(place),
                                         angles_, i);
        }
    }

    void find(const Tile& tile, int head) { rotate(tile.cells, tile.count, head, stored_.fetched_after(next_, head)); }
    void find_to_pack(const Tile& tile, int head) { rotate(tile.cells, tile.count, head, {}); }
    void find_some(const Cell* cells, int count, int head) { rotate(cells, count, head, {}); }

    static void fetch_after(const Tile* /*next*/, int /*head*/) {} // `find` did
    FetchedRows fetched(const Tile* next, int head) { return stored_.fetched(next, head); }

    void dot(int first, int rows, int count, float* scores) const {
        rotated_->dot(q_ + first * wide(), rows, count, scores);
    }
    void pack_keys(int count, float* out) const { rotated_->pack_keys(count, out); }
    static constexpr int pieces() { return FloatRows::pieces(); }
    bool split_keys(int count, std::byte* out) const { return rotated_->split_keys(count, out); }

private:
    // Reads and rotates rows: of cells of the tile, in its order.
    void rotate(const Cell* cells, int count, int head, const FetchedRows& fetched) {
        rotated_ = &stored_.read_floats(cells, count, head);
        int in_tile[tile_cells];
        for (int i = 0, at = 0; i < count; ++i, ++at) {
            while (tile_->cells[at] != cells[i]) ++at;
            in_tile[i] = at;
        }
        kernels_.rotation.rotate(rotated_->data(), wide(), count, angles_, in_tile, fetched);
    }

    const Kernels& kernels_;
    const RotaryAngles& source_;
    TileRows<Rows> stored_;
    float* block_cosines_; // of the first position of a block
    float* block_sines_;
    RowAngles angles_; // of the tile's cells
    const Tile* tile_ = nullptr;
    const Tile* next_ = nullptr;
    const float* q_ = nullptr;
    FloatRows* rotated_ = nullptr;
};

} // namespace cellar::detail
