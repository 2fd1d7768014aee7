// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/divisor.hpp>
#include <cellar/kernel/each_element.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail::kernel {

/// Applies a kernel (see kernel.hpp) to all of [cells, heads, dim] where reads run along the dims and writes along the
/// cells, or the other way round. Each team of threads takes a square tile through its shared memory, so that
/// neighbouring threads access neighbouring memory on both sides. A tile is read completely before it is written.
template <class Kernel, bool ReadsAlongDims, class Team>
class EachTile {
public:
    using Value = typename Kernel::Value;
    static constexpr int side = 32;
    static constexpr int pitch = side + 1; // so that the elements of a column lie in different banks of shared memory
    static constexpr int bytes = side * pitch * static_cast<int>(sizeof(Value));
    static constexpr int strip = values_in_flight<Value>;
    static constexpr int threads = side * side / strip; ///< per team, ideally

    /// Cells are counted from `first` on. There are at most 2^30 values.
    EachTile(const Kernel& kernel, std::int64_t first, std::int32_t cells, std::int32_t heads, std::int32_t dim)
        : kernel_{kernel},
          first_{first},
          cells_{cells},
          heads_{heads},
          dim_{dim},
          tiles_of_cells_{across(cells)},
          tiles_of_dim_{across(dim)} {}

    std::int32_t tiles() const { return tiles_of_cells_.value() * tiles_of_dim_.value() * heads_; }

    CELLAR_FUNCTION void operator()(const Team& team) const {
        constexpr int size = bytes; // get_shmem takes a reference, and a static member has no address on a device
        auto* const shared = static_cast<Value*>(team.team_shmem().get_shmem(size));
        read(team, shared);
        team.team_barrier();
        write(team, shared);
    }

    /// What one thread of a team reads, and what it writes once all have read.
    CELLAR_FUNCTION void read(const Team& team, Value* shared) const {
        const Tile tile = tile_of(team.league_rank());
        is_whole(tile) ? read<true>(tile, team, shared) : read<false>(tile, team, shared);
    }
    CELLAR_FUNCTION void write(const Team& team, const Value* shared) const {
        const Tile tile = tile_of(team.league_rank());
        is_whole(tile) ? write<true>(tile, team, shared) : write<false>(tile, team, shared);
    }

private:
    struct Tile {
        std::int32_t first_cell;
        std::int32_t head;
        std::int32_t first_d;
    };
    struct Place {
        std::int32_t cell;
        std::int32_t d;
        std::int32_t shared;
    };

    // Nearly all tiles are whole. For these the compiler computes a thread's first place and then only adds.
    template <bool IsWhole>
    CELLAR_FUNCTION void read(const Tile& tile, const Team& team, Value* shared) const {
        for (int thread = team.team_rank(); thread < threads; thread += team.team_size()) {
            Value values[std::size_t{strip}];
            for (int k = 0; k < strip; ++k) {
                const Place at = place<ReadsAlongDims>(tile, thread, k);
                if (IsWhole || is_within(at)) values[k] = kernel_.read(first_ + at.cell, tile.head, at.d);
            }
            for (int k = 0; k < strip; ++k) {
                const Place at = place<ReadsAlongDims>(tile, thread, k);
                if (IsWhole || is_within(at)) shared[at.shared] = values[k];
            }
        }
    }
    template <bool IsWhole>
    CELLAR_FUNCTION void write(const Tile& tile, const Team& team, const Value* shared) const {
        for (int thread = team.team_rank(); thread < threads; thread += team.team_size()) {
            for (int k = 0; k < strip; ++k) {
                const Place at = place<!ReadsAlongDims>(tile, thread, k);
                if (IsWhole || is_within(at)) kernel_.write(first_ + at.cell, tile.head, at.d, shared[at.shared]);
            }
        }
    }

    CELLAR_FUNCTION bool is_whole(const Tile& tile) const {
        return tile.first_cell + side <= cells_ && tile.first_d + side <= dim_;
    }
    CELLAR_FUNCTION bool is_within(const Place& at) const { return at.cell < cells_ && at.d < dim_; }

    CELLAR_FUNCTION static std::int32_t across(std::int32_t n) { return (n + side - 1) / side; }

    CELLAR_FUNCTION Tile tile_of(std::int32_t rank) const {
        const auto [rest, of_cells] = tiles_of_cells_.divide(rank);
        const auto [head, of_dim] = tiles_of_dim_.divide(rest);
        return {of_cells * side, head, of_dim * side};
    }

    /// The k-th place of a thread. Neighbouring threads are neighbours along the dims or along the cells.
    template <bool AlongDims>
    CELLAR_FUNCTION static Place place(const Tile& tile, int thread, int k) {
        const int along = thread % side;
        const int across = thread / side + k * (threads / side);
        const int i = AlongDims ? across : along;
        const int j = AlongDims ? along : across;
        return {tile.first_cell + i, tile.first_d + j, i * pitch + j};
    }

    Kernel kernel_;
    std::int64_t first_;
    std::int32_t cells_;
    std::int32_t heads_;
    std::int32_t dim_;
    Divisor tiles_of_cells_;
    Divisor tiles_of_dim_;
};

} // namespace cellar::detail::kernel
