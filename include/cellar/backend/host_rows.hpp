// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_convert.hpp>
#include <cellar/backend/host_transpose.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

namespace cellar::detail {

inline std::span<const Cell> cells_from(std::span<const Cell> cells, std::int64_t begin, std::int64_t end) {
    return cells.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

/// How many cells from cells[first] on are neighbours in memory too.
inline std::int64_t run_length(std::span<const Cell> cells, std::int64_t first) {
    const Cell* const run = cells.data() + first;
    std::int64_t n = 1;
    while (first + n < std::ssize(cells) && run[n] == run[0] + n) ++n;
    return n;
}

/// Calls `element(i, head, d)` for all elements: what any mapping and any strides can do.
template <class View, class Element>
void visit_elements(const View& rows, Element element) {
    for (std::int64_t i = 0; i < rows.extent(0); ++i)
        for (std::int64_t head = 0; head < rows.extent(1); ++head)
            for (std::int64_t d = 0; d < rows.extent(2); ++d) element(i, head, d);
}

/// Calls `strip(i, head, offset, n)` for pieces that lie together both in `rows`, from (i, head, 0) on, and in memory:
/// runs of cells where the rows are dense, else heads.
template <class Mapping, class View, class Strip>
void visit_strips(const Mapping& mapping, std::span<const Cell> cells, const View& rows, Strip strip) {
    const bool dense = rows.is_contiguous();
    for (std::int64_t i = 0, run = 0; i < std::ssize(cells); i += run) {
        run = dense ? run_length(cells, i) : 1;
        const Cell cell = cells[static_cast<std::size_t>(i)];
        if (dense) {
            strip(i, 0, mapping(cell, 0, 0), run * rows.extent(1) * rows.extent(2));
        } else {
            for (std::int64_t head = 0; head < rows.extent(1); ++head)
                strip(i, head, mapping(cell, head, 0), rows.extent(2));
        }
    }
}

// A line of a row, and of a strip so many that the processor fetches them ahead.
inline constexpr std::int64_t block_rows = 256;
template <class E>
inline constexpr std::int64_t block_dims = 64 / sizeof(E);

/// Calls `block(head, first d, dims, first row, rows)` for pieces that fit on the stack. There they are turned from
/// rows to columns: memory is visited in pieces of a cache line and more both as rows and as strips of cells. Without
/// that, what lies a power of two apart would push one another out of the cache for every element.
template <class E, class View, class Block>
void visit_blocks(const View& rows, Block block) {
    constexpr std::int64_t most = block_dims<E>;
    for (std::int64_t head = 0; head < rows.extent(1); ++head)
        for (std::int64_t d = 0; d < rows.extent(2); d += most)
            for (std::int64_t i = 0; i < rows.extent(0); i += block_rows)
                block(head, d, std::min(most, rows.extent(2) - d), i, std::min(block_rows, rows.extent(0) - i));
}

/// Calls `piece(k, i, offset, n)` for each strip k < dims of a block and every run of its cells: [i, i + n) of the block
/// lie from `offset` on. Strip after strip, so that one of them is in reach for many scattered cells.
template <class Mapping, class Piece>
void visit_strips_of_block(const Mapping& mapping, std::span<const Cell> cells, std::int64_t head, std::int64_t d,
                           std::int64_t dims, Piece piece) {
    std::int64_t lengths[block_rows]; // of the run that begins there
    for (std::int64_t i = 0; i < std::ssize(cells); i += lengths[i])
        lengths[i] = Mapping::contiguous_cells ? run_length(cells, i) : 1;
    for (std::int64_t k = 0; k < dims; ++k)
        for (std::int64_t i = 0; i < std::ssize(cells); i += lengths[i])
            piece(k, i, mapping(cells[static_cast<std::size_t>(i)], head, d + k), lengths[i]);
}

/// A copy that is inlined for a single element.
template <class E>
void copy_run(const E* from, E* to, std::int64_t n) {
    if (n == 1) {
        *to = *from;
    } else {
        std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(E));
    }
}

/// Row i of `rows` to cells[i].
template <class Mapping, class E, class T>
void scatter_rows(const Mapping& mapping, E* memory, std::span<const Cell> cells, StridedView<const T, 3> rows) {
    using Index = std::int64_t;
    if (rows.stride(2) != 1) {
        visit_elements(rows, kernel::Scatter<Mapping, E, T>{mapping, memory, cells.data(), rows});
    } else if constexpr (Mapping::contiguous_rows) {
        visit_strips(mapping, cells, rows, [=](Index i, Index head, Index offset, Index n) {
            convert(&rows(i, head, 0), memory + offset, n);
        });
    } else {
        visit_blocks<E>(rows, [=](Index head, Index d, Index dims, Index first, Index n) {
            E block[block_rows][block_dims<E>];
            E strips[block_dims<E>][block_rows];
            for (Index i = 0; i < n; ++i) convert(&rows(first + i, head, d), block[i], dims);
            transpose(block, strips, n, dims);
            visit_strips_of_block(
                mapping, cells_from(cells, first, first + n), head, d, dims,
                [&](Index k, Index i, Index offset, Index count) { copy_run(&strips[k][i], memory + offset, count); });
        });
    }
}

/// The row of cells[i] to row i of `rows`.
template <class Mapping, class E, class T>
void gather_rows(const Mapping& mapping, const E* memory, std::span<const Cell> cells, StridedView<T, 3> rows) {
    using Index = std::int64_t;
    if (rows.stride(2) != 1) {
        visit_elements(rows, kernel::Gather<Mapping, E, T>{mapping, memory, cells.data(), rows});
    } else if constexpr (Mapping::contiguous_rows) {
        visit_strips(mapping, cells, rows, [=](Index i, Index head, Index offset, Index n) {
            convert(memory + offset, &rows(i, head, 0), n);
        });
    } else {
        visit_blocks<E>(rows, [=](Index head, Index d, Index dims, Index first, Index n) {
            E block[block_rows][block_dims<E>];
            E strips[block_dims<E>][block_rows];
            visit_strips_of_block(
                mapping, cells_from(cells, first, first + n), head, d, dims,
                [&](Index k, Index i, Index offset, Index count) { copy_run(memory + offset, &strips[k][i], count); });
            transpose(strips, block, dims, n);
            for (Index i = 0; i < n; ++i) convert(block[i], &rows(first + i, head, d), dims);
        });
    }
}

} // namespace cellar::detail
