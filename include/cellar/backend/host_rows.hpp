// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_convert.hpp>
#include <cellar/backend/host_lines.hpp>
#include <cellar/backend/host_transpose.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// What a thread turns from rows to columns at a time, on its stack.
template <std::int64_t Rows, std::int64_t RowBytes>
struct BlockShape {
    static constexpr std::int64_t rows = Rows;
    template <class E>
    static constexpr std::int64_t dims = RowBytes / std::int64_t{sizeof(E)};
};

/// A head of 128 elements of half, and of a strip two lines or more.
using WideBlocks = BlockShape<64, 256>;
/// For cells that lie apart: as many as the stack should hold, so that a strip is gone through for many of them at once.
using TallBlocks = BlockShape<256, 64>;

/// Rows [first, first + n) of one head, dims [d, d + dims) of them.
struct RowBlock {
    std::int64_t head;
    std::int64_t d;
    std::int64_t dims;
    std::int64_t first;
    std::int64_t n;
};

/// Calls `visit(block, next)` for all blocks; behind the last one comes one of no rows. Memory is visited in pieces of
/// cache lines both as rows and as strips of cells. Without that, what lies a power of two apart would push one another
/// out of the cache for every element.
template <class E, class Shape, class View, class Visit>
void visit_blocks(const View& rows, Visit visit) {
    const auto fitted = [&](std::int64_t head, std::int64_t d, std::int64_t first) {
        return RowBlock{head, d, std::min(Shape::template dims<E>, rows.extent(2) - d), first,
                        std::min(Shape::rows, rows.extent(0) - first)};
    };
    const auto behind = [&](const RowBlock& block) {
        if (block.first + block.n < rows.extent(0)) return fitted(block.head, block.d, block.first + block.n);
        if (block.d + block.dims < rows.extent(2)) return fitted(block.head, block.d + block.dims, 0);
        if (block.head + 1 < rows.extent(1)) return fitted(block.head + 1, 0, 0);
        return RowBlock{};
    };
    if (rows.extent(0) == 0 || rows.extent(1) == 0 || rows.extent(2) == 0) return;
    for (RowBlock block = fitted(0, 0, 0), next{}; block.n != 0; block = next) {
        next = behind(block);
        visit(block, next);
    }
}

/// Calls `piece(k, i, offset, n)` for each strip k < dims of a block and every run of its cells: [i, i + n) of the block
/// lie from `offset` on. Strip after strip, so that one of them is in reach for many scattered cells.
template <class Shape, class Mapping, class Piece>
void visit_strips_of_block(const Mapping& mapping, std::span<const Cell> all, const RowBlock& block, Piece piece) {
    const std::span<const Cell> cells = cells_from(all, block.first, block.first + block.n);
    std::int64_t lengths[Shape::rows]; // of the run that begins there
    for (std::int64_t i = 0; i < block.n; i += lengths[i])
        lengths[i] = Mapping::contiguous_cells ? run_length(cells, i) : 1;
    for (std::int64_t k = 0; k < block.dims; ++k)
        for (std::int64_t i = 0; i < block.n; i += lengths[i])
            piece(k, i, mapping(cells[static_cast<std::size_t>(i)], block.head, block.d + k), lengths[i]);
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
        using Shape = WideBlocks;
        visit_blocks<E, Shape>(rows, [=](const RowBlock& block, const RowBlock& next) {
            E turned[Shape::rows][Shape::template dims<E>];
            E strips[Shape::template dims<E>][Shape::rows];
            for (Index i = 0; i < block.n; ++i)
                convert(&rows(block.first + i, block.head, block.d), turned[i], block.dims);
            for (Index i = 0; i < next.n; ++i) prefetch(&rows(next.first + i, next.head, next.d), next.dims);
            transpose(turned, strips, block.n, block.dims);
            visit_strips_of_block<Shape>(mapping, cells, block, [&](Index k, Index i, Index offset, Index count) {
                stream_run(&strips[k][i], memory + offset, count);
            });
        });
        streamed();
    }
}

/// The same for strips of cells.
template <class Shape, class Mapping, class E, class T>
void gather_blocks(const Mapping& mapping, const E* memory, std::span<const Cell> cells, StridedView<T, 3> rows) {
    using Index = std::int64_t;
    visit_blocks<E, Shape>(rows, [=](const RowBlock& block, const RowBlock&) {
        E turned[Shape::rows][Shape::template dims<E>];
        E strips[Shape::template dims<E>][Shape::rows];
        visit_strips_of_block<Shape>(mapping, cells, block, [&](Index k, Index i, Index offset, Index count) {
            copy_run(memory + offset, &strips[k][i], count);
        });
        transpose(strips, turned, block.dims, block.n);
        for (Index i = 0; i < block.n; ++i) convert(turned[i], &rows(block.first + i, block.head, block.d), block.dims);
    });
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
    } else if (!cells.empty() && run_length(cells, 0) >= WideBlocks::rows / 4) {
        gather_blocks<WideBlocks>(mapping, memory, cells, rows);
    } else {
        gather_blocks<TallBlocks>(mapping, memory, cells, rows);
    }
}

} // namespace cellar::detail
