// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/lines.hpp>
#include <cellar/backend/host/ordered_cells.hpp>
#include <cellar/backend/host/transpose.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

/// Rows whose elements lie in strips: one strip of cells for each element of a head, counted through all heads,
/// thousands of bytes apart. Both rows and strips are visited in pieces of whole cache lines; otherwise addresses a
/// power of two apart would evict one another from the cache at every element.
namespace cellar::detail {

template <class Mapping>
std::int64_t strips_of(const Mapping& mapping) {
    return std::int64_t{mapping.heads()} * mapping.dim();
}

template <class Mapping, class E>
E* strip_at(const Mapping& mapping, E* memory, std::int64_t strip) {
    return memory + mapping(0, strip / mapping.dim(), strip % mapping.dim());
}

/// The block that a thread transposes at a time, on its stack.
template <std::int64_t Cells, std::int64_t RowBytes>
struct BlockShape {
    static constexpr std::int64_t cells = Cells;
    template <class E>
    static constexpr std::int64_t dims = RowBytes / std::int64_t{sizeof(E)};
};

/// For runs of cells: a head of 128 halves, and two cache lines or more of each strip.
using WideBlocks = BlockShape<64, 256>;
/// For single cells: many cells per strip.
using TallBlocks = BlockShape<256, 128>;

/// Strips [d, d + dims) of a head, and cells [first, first + n) of a list.
struct StripBlock {
    std::int64_t head;
    std::int64_t d;
    std::int64_t dims;
    std::int64_t first;
    std::int64_t n;
};

/// The beginning of strip k of a block.
template <class Mapping, class E>
E* strip_of(const Mapping& mapping, E* memory, const StripBlock& block, std::int64_t k) {
    return memory + mapping(0, block.head, block.d + k);
}

/// The block's part of row i.
template <class T>
T* row_of(const StridedView<T, 3>& rows, const StripBlock& block, std::int64_t i) {
    return &rows(i, block.head, block.d);
}

/// Calls `visit(block, next)` for the blocks that make up strips [begin, end) of a list of cells, with `dim` strips per
/// head. The last block's `next` is empty.
template <class E, class Shape, class Visit>
void visit_blocks(std::int64_t begin, std::int64_t end, std::int64_t dim, std::int64_t cells, Visit visit) {
    const auto block_at = [&](std::int64_t strip, std::int64_t first) {
        if (strip >= end || first >= cells) return StripBlock{};
        const std::int64_t d = strip % dim;
        const std::int64_t dims = std::min({Shape::template dims<E>, dim - d, end - strip});
        return StripBlock{strip / dim, d, dims, first, std::min(Shape::cells, cells - first)};
    };
    for (StripBlock block = block_at(begin, 0), next{}; block.n != 0; block = next) {
        const std::int64_t strip = block.head * dim + block.d;
        const bool last = block.first + block.n == cells;
        next = last ? block_at(strip + block.dims, 0) : block_at(strip, block.first + block.n);
        visit(block, next);
    }
}

/// The runs of the cells of a block.
template <class Shape>
class BlockRuns {
public:
    BlockRuns(std::span<const Cell> cells, const StripBlock& block) : cells_{cells_from(cells, block)} {
        for (std::int64_t i = 0; i < std::ssize(cells_); i += lengths_[i]) lengths_[i] = run_length(cells_, i);
    }

    /// Calls `visit(i, cell, n)`: cells [i, i + n) of the block lie from `cell` on.
    template <class Visit>
    void for_each(Visit visit) const {
        for (std::int64_t i = 0; i < std::ssize(cells_); i += lengths_[i])
            visit(i, cells_[static_cast<std::size_t>(i)], lengths_[i]);
    }

private:
    static std::span<const Cell> cells_from(std::span<const Cell> cells, const StripBlock& block) {
        return cells.subspan(static_cast<std::size_t>(block.first), static_cast<std::size_t>(block.n));
    }

    std::span<const Cell> cells_;
    std::int64_t lengths_[Shape::cells]; // of the run that begins at i
};

/// Writes row i of `rows`, whose elements are contiguous, to cells[i].
template <class Mapping, class E, class T>
void scatter_strips(const Mapping& mapping, E* memory, std::span<const Cell> cells, StridedView<const T, 3> rows) {
    using Index = std::int64_t;
    using Shape = WideBlocks;
    const auto scatter = [&](const StripBlock& block, const StripBlock& next) {
        E block_rows[Shape::cells][Shape::template dims<E>];
        E strips[Shape::template dims<E>][Shape::cells];
        for (Index i = 0; i < block.n; ++i)
            convert_run(row_of(rows, block, block.first + i), block_rows[i], block.dims);
        for (Index i = 0; i < next.n; ++i) prefetch<CacheLevel::second>(row_of(rows, next, next.first + i), next.dims);
        transpose(block_rows, strips, block.n, block.dims);
        const BlockRuns<Shape> runs{cells, block};
        for (Index k = 0; k < block.dims; ++k)
            runs.for_each([&](Index i, Cell cell, Index n) {
                stream_run(&strips[k][i], strip_of(mapping, memory, block, k) + cell, n);
            });
    };
    visit_blocks<E, Shape>(0, strips_of(mapping), mapping.dim(), std::ssize(cells), scatter);
    streamed();
}

/// Reads the block, in runs of cells: block_rows[i][k] becomes the element of cell i in strip k. Prefetches the strips
/// that follow, also those of the next block, so that many cache lines are in flight.
template <class Shape, class Mapping, class E, std::size_t Cells, std::size_t Dims>
void read_runs(const Mapping& mapping, const E* memory, std::span<const Cell> cells, const StripBlock& block,
               const StripBlock& next, E (&block_rows)[Cells][Dims]) {
    constexpr std::int64_t strips_ahead = 48;
    const BlockRuns<Shape> runs{cells, block};
    const BlockRuns<Shape> next_runs{cells, next};
    const auto prefetch_strip = [](const BlockRuns<Shape>& of, const E* strip) {
        of.for_each([=](std::int64_t, Cell cell, std::int64_t n) { prefetch<CacheLevel::second>(strip + cell, n); });
    };
    E strips[Dims][Cells];
    for (std::int64_t k = 0; k < block.dims; ++k) {
        const std::int64_t ahead = k + strips_ahead;
        if (ahead < block.dims) {
            prefetch_strip(runs, strip_of(mapping, memory, block, ahead));
        } else if (ahead - block.dims < next.dims) {
            prefetch_strip(next_runs, strip_of(mapping, memory, next, ahead - block.dims));
        }
        const E* const from = strip_of(mapping, memory, block, k);
        runs.for_each([&](std::int64_t i, Cell cell, std::int64_t n) { copy_run(from + cell, &strips[k][i], n); });
    }
    transpose(strips, block_rows, block.dims, block.n);
}

/// The same for single cells: a few strips at a time, whose lines stay in the cache.
template <class Mapping, class E, std::size_t Cells, std::size_t Dims>
void read_singles(const Mapping& mapping, const E* memory, std::span<const Cell> cells, const StripBlock& block,
                  E (&block_rows)[Cells][Dims]) {
    constexpr std::int64_t together = 4;
    const Cell* const single = cells.data() + block.first;
    std::int64_t k = 0;
    for (; k + together <= block.dims; k += together) {
        const E* from[together];
        for (std::int64_t l = 0; l < together; ++l) from[l] = strip_of(mapping, memory, block, k + l);
        for (std::int64_t i = 0; i < block.n; ++i)
            for (std::int64_t l = 0; l < together; ++l) block_rows[i][k + l] = from[l][single[i]];
    }
    for (; k < block.dims; ++k) {
        const E* const from = strip_of(mapping, memory, block, k);
        for (std::int64_t i = 0; i < block.n; ++i) block_rows[i][k] = from[single[i]];
    }
}

/// Reads the elements of strips [begin, end) of cells[i] into row i of `rows`, whose elements are contiguous.
template <class Mapping, class E, class T>
void gather_strips(const Mapping& mapping, const E* memory, std::span<const Cell> cells, StridedView<T, 3> rows,
                   std::int64_t begin, std::int64_t end) {
    using Index = std::int64_t;
    for (Index first = 0; first < std::ssize(cells); first += OrderedCells::max_cells) {
        const OrderedCells ordered{
            cells_from(cells, first, std::min(first + OrderedCells::max_cells, std::ssize(cells))), mapping.cells()};
        const auto write = [&](const StripBlock& block, const auto& block_rows) {
            for (Index i = 0; i < block.n; ++i)
                stream(block_rows[i], row_of(rows, block, first + ordered.row(block.first + i)), block.dims);
        };
        const auto gather_runs = [&](const StripBlock& block, const StripBlock& next) {
            E block_rows[WideBlocks::cells][WideBlocks::dims<E>];
            read_runs<WideBlocks>(mapping, memory, ordered.cells(), block, next, block_rows);
            write(block, block_rows);
        };
        const auto gather_singles = [&](const StripBlock& block, const StripBlock&) {
            E block_rows[TallBlocks::cells][TallBlocks::dims<E>];
            read_singles(mapping, memory, ordered.cells(), block, block_rows);
            write(block, block_rows);
        };
        const Index n = std::ssize(ordered.cells());
        if (ordered.runs() * tile_rows<E> <= n) {
            visit_blocks<E, WideBlocks>(begin, end, mapping.dim(), n, gather_runs);
        } else {
            visit_blocks<E, TallBlocks>(begin, end, mapping.dim(), n, gather_singles);
        }
    }
    streamed();
}

} // namespace cellar::detail
