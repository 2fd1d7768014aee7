// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/function.hpp>
#include <cellar/base/view.hpp>

#include <cstdint>
#include <type_traits>

namespace cellar {

/// A view of a range of cells in memory that is [blocks, heads, BlockCells, dim], indexed (cell, head, d). It does not
/// own the memory, is trivially copyable, and is usable in device code. It has `rank()`, `extent(r)` and `size()` as
/// `StridedView`, but no strides, because cells of different blocks have no common one: `rows` and `whole_blocks`
/// return the strided views that exist.
template <class T, std::int32_t BlockCells>
struct BlockedView {
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    static constexpr std::int32_t block_cells = BlockCells;

    T* pointer = nullptr;        ///< of the block that holds the first cell
    std::int64_t first_cell = 0; ///< of the view, in that block
    std::int64_t extents[3] = {};

    CELLAR_FUNCTION static constexpr int rank() { return 3; }
    CELLAR_FUNCTION constexpr std::int64_t extent(int r) const { return extents[r]; }
    CELLAR_FUNCTION constexpr std::int64_t size() const { return extents[0] * extents[1] * extents[2]; }

    template <class Cell, class Head, class Dim>
    CELLAR_FUNCTION constexpr T& operator()(Cell cell, Head head, Dim d) const {
        const std::int64_t at = first_cell + static_cast<std::int64_t>(cell);
        return rows_of(at / BlockCells,
                       static_cast<std::int64_t>(head))[at % BlockCells * extents[2] + static_cast<std::int64_t>(d)];
    }

    /// The blocks that hold cells of the view.
    CELLAR_FUNCTION constexpr std::int64_t blocks() const {
        return extents[0] == 0 ? 0 : (first_cell + extents[0] + BlockCells - 1) / BlockCells;
    }

    /// The rows of one head in one block, as far as they belong to the view: [cells, dim], contiguous. The first one is
    /// that of cell max(0, block * BlockCells - first_cell) of the view.
    CELLAR_FUNCTION constexpr StridedView<T, 2> rows(std::int64_t block, std::int64_t head) const {
        const std::int64_t from = block == 0 ? first_cell : 0;
        const std::int64_t rest = first_cell + extents[0] - block * BlockCells;
        const std::int64_t to = rest < BlockCells ? rest : BlockCells;
        return contiguous_view(rows_of(block, head) + from * extents[2], to - from, extents[2]);
    }

    /// [blocks, heads, BlockCells, dim]. A violation if the view does not begin and end with whole blocks.
    constexpr StridedView<T, 4> whole_blocks(Where where = Where::current()) const {
        CELLAR_EXPECTS_AT(where, first_cell == 0 && extents[0] % BlockCells == 0, "whole_blocks: cells [", first_cell,
                          ", ", first_cell + extents[0], ") of the first block and those behind it, expected to begin ",
                          "and end at multiples of ", BlockCells);
        return contiguous_view(pointer, extents[0] / BlockCells, extents[1], std::int64_t{BlockCells}, extents[2]);
    }

    /// A view of mutable elements converts to a view of constant elements.
    template <class Constant>
        requires(std::is_same_v<Constant, const T> && !std::is_const_v<T>)
    CELLAR_FUNCTION constexpr operator BlockedView<Constant, BlockCells>() const {
        return {pointer, first_cell, {extents[0], extents[1], extents[2]}};
    }

private:
    CELLAR_FUNCTION constexpr T* rows_of(std::int64_t block, std::int64_t head) const {
        return pointer + (block * extents[1] + head) * BlockCells * extents[2];
    }
};

} // namespace cellar
