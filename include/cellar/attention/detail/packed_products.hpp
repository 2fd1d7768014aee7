// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/matrix_unit.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cellar::detail {

/// How many pieces hold an element without a loss.
template <class E>
inline constexpr int pieces_of = std::is_same_v<E, bfloat16> ? 1
                                 : std::is_same_v<E, half>   ? 2
                                                             : max_pieces;

/// Multiplies packed tiles of keys and values, whose elements were Key and Value, by the queries of a block and by
/// their weights. It uses the matrix unit if there is one, if it pays, and if no number is too large for it; else
/// vectors.
template <class Query, class Key, class Value>
class PackedProducts {
public:
    static constexpr int most_pieces = std::max(pieces_of<Key>, pieces_of<Value>);
    static constexpr int least_rows = 32 * most_pieces;

    /// Whether so many queries pay for the pieces of a tile (docs/performance.md). For three pieces, none do.
    static constexpr bool unit_pays(int rows) { return most_pieces < max_pieces && rows >= least_rows; }

    /// `rows`: of the largest block that packs. Dims are multiples of dim_unit.
    PackedProducts(const FloatKernels& vectors, const MatrixKernels& unit, int rows, std::int64_t key_dim,
                   std::int64_t value_dim, ScratchArrays& arrays)
        : vectors_{vectors}, unit_{unit}, key_dim_{key_dim}, value_dim_{value_dim} {
        if (!unit_) return;
        queries_ = arrays.take<std::byte>(split_bytes(rows, key_dim, pieces_of<Query>));
        weights_ = arrays.take<std::byte>(split_bytes(rows, tile_cells, max_pieces));
        tile_ = arrays.take<std::byte>(std::max(split_bytes(tile_cells, key_dim, pieces_of<Key>),
                                                split_bytes(value_dim, tile_cells, pieces_of<Value>)));
    }

    /// The queries [rows, key_dim] of the tiles that follow.
    void start(const float* q, int rows) {
        q_ = q;
        rows_ = rows;
        uses_unit_ =
            unit_ && unit_pays(rows) && unit_.split_left(q, key_dim_, rows, key_dim_, pieces_of<Query>, queries_);
    }

    /// See `multiply` in kernels_for_vector.hpp.
    void multiply(const float* keys, int cells, float* scores, const FetchedRows& next) const {
        if (uses_unit_ && unit_.split_right(keys, key_dim_, tile_cells, pieces_of<Key>, tile_)) {
            const Product product{rows_, key_dim_, tile_cells, scores, tile_cells, false};
            unit_.multiply({queries_, pieces_of<Query>}, {tile_, pieces_of<Key>}, product, next);
        } else {
            vectors_.multiply(q_, key_dim_, rows_, key_dim_, keys, cells, scores, next);
        }
    }

    /// See `add_packed_values` in kernels_for_vector.hpp. Behind the cells, weights are 0 up to a multiple of 16.
    void add_values(const float* weights, int cells, const float* values, float* out, const FetchedRows& next) const {
        if (uses_unit_ && unit_.split_right(values, cells, value_dim_, pieces_of<Value>, tile_)
            && unit_.split_left(weights, tile_cells, rows_, cells, max_pieces, weights_)) {
            const Product product{rows_, cells, value_dim_, out, value_dim_, true};
            unit_.multiply({weights_, max_pieces}, {tile_, pieces_of<Value>}, product, next);
        } else {
            vectors_.add_packed_values(weights, rows_, cells, values, value_dim_, out, value_dim_, next);
        }
    }

private:
    const FloatKernels& vectors_;
    const MatrixKernels& unit_;
    std::int64_t key_dim_;
    std::int64_t value_dim_;
    const float* q_ = nullptr;
    int rows_ = 0;
    bool uses_unit_ = false;
    std::byte* queries_ = nullptr;
    std::byte* weights_ = nullptr;
    std::byte* tile_ = nullptr; // keys, then values
};

} // namespace cellar::detail
