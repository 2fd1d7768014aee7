// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/rows_ahead.hpp>
#include <cellar/attention/detail/tile.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Rows of keys are padded to this many codes, which kernels multiply together.
inline constexpr std::int64_t code_unit = 32;

/// Queries that a kernel weighs values for together, at most: where a head has more, its tile is packed.
inline constexpr int max_rows_of_values = 16;

/// Rows of tile_cells floats that kernels of a head's codes use for themselves: products of factors and of the steps of
/// four queries; or weights times factors, weights and factors relative to their largest ones, and these.
constexpr std::int64_t scratch_rows(std::int64_t groups) {
    const std::int64_t of_values =
        std::int64_t{2} * max_rows_of_values + groups + (max_rows_of_values + groups) / tile_cells + 1;
    return 4 * groups > of_values ? 4 * groups : of_values;
}

constexpr std::int64_t padded_codes(std::int64_t dim) {
    return (dim + code_unit - 1) / code_unit * code_unit;
}

/// The keys or the values of one head of a tile's cells, as codes: value d of cell c, in group g = d / group, is
///   rows[c][d % group + g * next_group] * factors[g, c] + offsets[g, c].
/// Behind the tile's cells, pointers repeat, or those of numbers have zeros, and factors and offsets are 0 up to a
/// multiple of 16. Behind dim, codes of keys are 0 up to a multiple of code_unit, if one factor serves the whole head.
template <class Code>
struct CodeTile {
    const Code* const* rows;
    const float* factors; ///< [groups, tile_cells]; null: ones, of numbers
    const float* offsets; ///< the same; null: zeros
    std::int64_t dim;
    std::int64_t group; ///< the values of a factor: dim, or a multiple of 16
    std::int64_t groups;
    std::int64_t next_group; ///< from the codes of a group to those of the next one
};

/// Codes of values, as `add_block` of the kernels for vectors reads rows, into which it is inlined.
template <class Code>
struct CodeRows {
    static constexpr bool is_whole = true;
    static constexpr int max_rows = 4;
    static constexpr int steps_together = 1;
    const Code* const* rows;
    std::int64_t column;
    LinesAhead* ahead;
    [[gnu::always_inline]] const Code* operator()(std::int64_t k) const { return rows[k] + column; }
    template <std::size_t>
    [[gnu::always_inline]] void prefetch_next() const {
        ahead->step();
    }
};

/// Queries that are rounded to bytes, in steps of their own for each group, or to bfloat16, without steps. The rows
/// that a kernel takes together are in blocks, [stride / code_unit, rows, code_unit], or as kernels_for_columns.hpp
/// says.
struct ByteQueries {
    std::int8_t* bytes = nullptr;
    std::int64_t stride = 0;
    float* steps = nullptr;         ///< [rows, groups]
    float* sums = nullptr;          ///< the same, of the queries before they were rounded
    std::int32_t* totals = nullptr; ///< the same, of the bytes

    /// `groups`: 0 without steps.
    ByteQueries from_row(std::int64_t row, std::int64_t groups) const {
        return {bytes + row * stride, stride, steps + row * groups, sums + row * groups, totals + row * groups};
    }
};

} // namespace cellar::detail
