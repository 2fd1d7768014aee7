// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Attention goes through a history in tiles of at most this many cells: a bit of a word for each.
inline constexpr int tile_cells = 64;

/// The dims of rows that kernels read and write are multiples of this, the lanes of the widest vector.
inline constexpr int dim_unit = 16;
/// Kernels read rows of multiples of this in place.
inline constexpr int row_unit = 8;

constexpr std::int64_t padded_dim(std::int64_t dim) {
    return (dim + dim_unit - 1) / dim_unit * dim_unit;
}

/// Rows of the same head of some cells: those of head 0, and how many elements further those of this head are.
template <class E>
struct HeadRows {
    const E* const* first;
    std::ptrdiff_t offset;

    constexpr const E* operator[](std::ptrdiff_t cell) const { return first[cell] + offset; }
    constexpr HeadRows operator+(std::ptrdiff_t cells) const { return {first + cells, offset}; }
};

/// The softmax prefetches 5/16 of the next rows of values; the kernel that adds values prefetches the rest. Without
/// that, nothing would be fetched during the softmax, and more than memory can deliver after it.
inline constexpr int softmax_share = 5;

constexpr int fetched_by_softmax(int rows) {
    return rows * softmax_share / 16;
}

/// Rows that are read next. A kernel prefetches them while it computes, one line of 64 bytes at a time.
struct FetchedRows {
    const std::byte* const* rows = nullptr;
    std::int64_t row_bytes = 0;
    int lines = 0; ///< of all rows
};

/// How rows of floats are rotated: each by the angles of its own position. See `RotaryAngles` for lists of cosines and
/// sines.
struct RowAngles {
    float* cosines; ///< a list for each of tile_cells cells, `stride` apart
    float* sines;
    std::int64_t stride; ///< multiple of dim_unit
    std::int64_t count;  ///< entries of a list
    std::int64_t first;  ///< the elements of the first pair
    std::int64_t second;
    bool neighbours;
};

/// One step of a softmax that sees the scores a tile at a time: scores [rows, tile_cells] become weights, relative to
/// the largest score so far, and what was summed before is scaled to that.
struct SoftmaxStep {
    float* scores;
    int rows;
    int cells;                    ///< of the tile; the scores after them may be anything
    const std::uint64_t* visible; ///< for each row, the cells that it sees; null: all rows see all cells
    ScoreRule<float> rule;
    const HeadRule* of_rows;       ///< for each row, what of the rule depends on its head
    const std::int32_t* positions; ///< of the cells
    const std::int32_t* queries;   ///< for each row, its position
    float* largest;                ///< for each row, the largest score so far; -infinity: none
    float* sums;                   ///< for each row, of the weights so far
    float* values;                 ///< [rows, value_dim], with `value_stride`: of weights * values so far
    std::ptrdiff_t value_stride;
    std::int64_t value_dim; ///< multiple of dim_unit
    FetchedRows fetched{};
};

} // namespace cellar::detail
