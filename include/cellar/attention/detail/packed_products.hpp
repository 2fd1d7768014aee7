// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/matrix_unit.hpp>
#include <cellar/attention/detail/row_source.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/base/scratch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Multiplies the rows of a tile by many queries and by their weights. To do so, it splits them for the matrix unit, if
/// there is one, if it pays, and if no number is too large for it. Else it packs them as floats, the keys transposed.
template <class Query, class Keys, class Values>
class PackedProducts {
public:
    static constexpr int most_pieces =
        std::max(pieces_of<typename Keys::element_type>, pieces_of<typename Values::element_type>);
    static constexpr int least_rows = 32 * most_pieces;

    /// Whether so many queries pay for splitting a tile (docs/decisions.md). For floats, none do.
    static constexpr bool unit_pays(int rows) { return most_pieces < max_pieces && rows >= least_rows; }

    /// `rows`: of the largest block that packs.
    PackedProducts(const FloatKernels& vectors, const MatrixKernels& unit, const TileRows<Keys>& keys,
                   const TileRows<Values>& values, int rows, ScratchArrays& arrays)
        : vectors_{vectors},
          unit_{unit},
          keys_{keys},
          values_{values},
          key_dim_{keys.wide()},
          value_dim_{values.wide()},
          packed_keys_{arrays.take<float>(key_dim_ * tile_cells)},
          packed_values_{arrays.take<float>(value_dim_ * tile_cells)} {
        if (!unit_) return;
        split_queries_ = arrays.take<std::byte>(split_bytes(rows, key_dim_, pieces_of<Query>));
        split_weights_ = arrays.take<std::byte>(split_bytes(rows, tile_cells, max_pieces));
        split_tile_ = arrays.take<std::byte>(std::max(split_bytes(tile_cells, key_dim_, keys.pieces()),
                                                      split_bytes(value_dim_, tile_cells, values.pieces())));
    }

    /// The queries [rows, key_dim] of the tiles that follow.
    void start(const float* q, int rows) {
        q_ = q;
        rows_ = rows;
        uses_unit_ =
            unit_ && unit_pays(rows) && unit_.split_left(q, key_dim_, rows, key_dim_, pieces_of<Query>, split_queries_);
    }

    /// scores [rows, tile_cells] = the queries * the keys that were found, of `cells` cells. Prefetches `next`.
    void multiply(int cells, float* scores, const FetchedRows& next) const {
        if (uses_unit_ && keys_.split_keys(cells, split_tile_)) {
            const Product product{rows_, key_dim_, padded_dim(cells), scores, tile_cells, false};
            unit_.multiply({split_queries_, pieces_of<Query>}, {split_tile_, keys_.pieces()}, product, next);
        } else {
            keys_.pack_keys(cells, packed_keys_);
            vectors_.multiply(q_, key_dim_, rows_, key_dim_, packed_keys_, cells, scores, next);
        }
    }

    /// out [rows, value_dim] += weights [rows, tile_cells] * the values that were found. Behind the cells, weights are
    /// 0 up to a multiple of 16. Prefetches `next`. Returns false, and adds nothing, if a value is not finite and not
    /// all of them count: 0 * infinity is not a number.
    bool add_values(const float* weights, int cells, bool all_count, float* out, const FetchedRows& next) const {
        if (uses_unit_ && values_.split_values(cells, split_tile_)
            && unit_.split_left(weights, tile_cells, rows_, cells, max_pieces, split_weights_)) {
            const Product product{rows_, cells, value_dim_, out, value_dim_, true};
            unit_.multiply({split_weights_, max_pieces}, {split_tile_, values_.pieces()}, product, next);
            return true;
        }
        if (!values_.pack_values(cells, packed_values_) && !all_count) return false;
        vectors_.add_packed_values(weights, rows_, cells, packed_values_, value_dim_, out, value_dim_, next);
        return true;
    }

    /// The values [cells, value_dim] of which add_values found that one is not finite.
    const float* packed_values() const { return packed_values_; }

private:
    const FloatKernels& vectors_;
    const MatrixKernels& unit_;
    const TileRows<Keys>& keys_;
    const TileRows<Values>& values_;
    std::int64_t key_dim_;
    std::int64_t value_dim_;
    float* packed_keys_;
    float* packed_values_;
    const float* q_ = nullptr;
    int rows_ = 0;
    bool uses_unit_ = false;
    std::byte* split_queries_ = nullptr;
    std::byte* split_weights_ = nullptr;
    std::byte* split_tile_ = nullptr; // keys, then values
};

} // namespace cellar::detail
