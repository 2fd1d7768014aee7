// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_convert.hpp>
#include <cellar/backend/host_lines.hpp>
#include <cellar/backend/host_transpose.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

/// Rows whose elements lie in strips of cells: one strip for each element of a head, thousands of bytes apart. Memory is
/// visited in pieces of cache lines both as rows and as strips. Without that, what lies a power of two apart would push
/// one another out of the cache for every element.
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

/// What a thread turns from rows to columns at a time, on its stack.
template <std::int64_t Rows, std::int64_t RowBytes>
struct BlockShape {
    static constexpr std::int64_t rows = Rows;
    template <class E>
    static constexpr std::int64_t dims = RowBytes / std::int64_t{sizeof(E)};
};

/// A head of 128 elements of half, and of a strip two lines or more.
using ScatterBlock = BlockShape<64, 256>;
/// More cells, as those of a sequence may lie apart: a strip is gone through for many of them at once.
using GatherBlock = BlockShape<128, 128>;

/// Rows [first, first + n) of one head, dims [d, d + dims) of them.
struct RowBlock {
    std::int64_t head;
    std::int64_t d;
    std::int64_t dims;
    std::int64_t first;
    std::int64_t n;
};

/// Calls `visit(block, next)` for all blocks; behind the last one comes one of no rows.
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
/// lie from `offset` on.
template <class Shape, class Mapping, class Piece>
void visit_strips_of_block(const Mapping& mapping, std::span<const Cell> cells, const RowBlock& block, Piece piece) {
    std::int64_t lengths[Shape::rows]; // of the run that begins there
    for (std::int64_t i = 0; i < block.n; i += lengths[i]) lengths[i] = run_length(cells, i);
    for (std::int64_t k = 0; k < block.dims; ++k)
        for (std::int64_t i = 0; i < block.n; i += lengths[i])
            piece(k, i, mapping(cells[static_cast<std::size_t>(i)], block.head, block.d + k), lengths[i]);
}

/// Row i of `rows`, whose elements lie side by side, to cells[i].
template <class Mapping, class E, class T>
void scatter_strips(const Mapping& mapping, E* memory, std::span<const Cell> all, StridedView<const T, 3> rows) {
    using Index = std::int64_t;
    using Shape = ScatterBlock;
    visit_blocks<E, Shape>(rows, [=](const RowBlock& block, const RowBlock& next) {
        E turned[Shape::rows][Shape::template dims<E>];
        E strips[Shape::template dims<E>][Shape::rows];
        for (Index i = 0; i < block.n; ++i)
            convert(&rows(block.first + i, block.head, block.d), turned[i], block.dims);
        for (Index i = 0; i < next.n; ++i) prefetch(&rows(next.first + i, next.head, next.d), next.dims);
        transpose(turned, strips, block.n, block.dims);
        const std::span<const Cell> cells = cells_from(all, block.first, block.first + block.n);
        visit_strips_of_block<Shape>(mapping, cells, block, [&](Index k, Index i, Index offset, Index count) {
            stream_run(&strips[k][i], memory + offset, count);
        });
    });
    streamed();
}

/// The cells of a gather, a few thousand at a time, in the order of memory: so each strip is read once, from one end to
/// the other, however the cells lie.
class OrderedCells {
public:
    static constexpr std::int64_t most = 4096;

    /// Cells of a memory of `capacity`. O(cells).
    OrderedCells(std::span<const Cell> cells, std::int64_t capacity) {
        // In order of the buckets; within one as they came, so that runs stay together.
        constexpr int buckets = 256;
        int shift = 0;
        while ((capacity - 1) >> shift >= buckets) ++shift;
        std::int32_t begins[buckets + 1] = {};
        for (const Cell cell : cells) ++begins[(cell >> shift) + 1];
        for (int bucket = 0; bucket < buckets; ++bucket) begins[bucket + 1] += begins[bucket];
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::int32_t at = begins[cells[i] >> shift]++;
            cells_[at] = cells[i];
            rows_[at] = static_cast<std::int32_t>(i);
        }
        count_ = std::ssize(cells);
    }

    std::span<const Cell> cells() const { return {cells_, static_cast<std::size_t>(count_)}; }
    /// Where cells()[i] stood in the list.
    std::int64_t row(std::int64_t i) const { return rows_[i]; }

private:
    Cell cells_[most];
    std::int32_t rows_[most];
    std::int64_t count_;
};

/// turned[i][k] becomes what cells[i] has in strip k of the block.
template <class Shape, class Mapping, class E, std::size_t Rows, std::size_t Dims>
void read_strips(const Mapping& mapping, const E* memory, std::span<const Cell> cells, const RowBlock& block,
                 E (&turned)[Rows][Dims]) {
    std::int64_t runs = 0;
    for (std::int64_t i = 0; i < block.n; i += run_length(cells, i)) ++runs;
    if (runs * tile_rows<E> <= block.n) {
        E strips[Dims][Rows];
        visit_strips_of_block<Shape>(mapping, cells, block, [&](auto k, auto i, auto offset, auto count) {
            copy_run(memory + offset, &strips[k][i], count);
        });
        transpose(strips, turned, block.dims, block.n);
    } else {
        const E* strips[Dims];
        for (std::int64_t k = 0; k < block.dims; ++k) strips[k] = memory + mapping(0, block.head, block.d + k);
        constexpr std::int64_t together = 4; // strips whose lines are in reach at a time
        std::int64_t k = 0;
        for (; k + together <= block.dims; k += together)
            for (std::int64_t i = 0; i < block.n; ++i)
                for (std::int64_t l = k; l < k + together; ++l) turned[i][l] = strips[l][cells[i]];
        for (; k < block.dims; ++k)
            for (std::int64_t i = 0; i < block.n; ++i) turned[i][k] = strips[k][cells[i]];
    }
}

/// Elements of the strips [begin, end), counted through all heads, of cells[i] to row i of `rows`.
template <class Mapping, class E, class T>
void gather_strips(const Mapping& mapping, const E* memory, std::span<const Cell> cells, StridedView<T, 3> rows,
                   std::int64_t begin, std::int64_t end) {
    using Index = std::int64_t;
    using Shape = GatherBlock;
    for (Index first = 0; first < std::ssize(cells); first += OrderedCells::most) {
        const OrderedCells ordered{cells_from(cells, first, std::min(first + OrderedCells::most, std::ssize(cells))),
                                   mapping.cells()};
        for (Index strip = begin, dims = 0; strip < end; strip += dims) {
            const Index d = strip % mapping.dim();
            dims = std::min({Shape::template dims<E>, mapping.dim() - d, end - strip});
            for (Index i = 0, n = 0; i < std::ssize(ordered.cells()); i += n) {
                n = std::min(Shape::rows, std::ssize(ordered.cells()) - i);
                const RowBlock block{strip / mapping.dim(), d, dims, i, n};
                E turned[Shape::rows][Shape::template dims<E>];
                read_strips<Shape>(mapping, memory, cells_from(ordered.cells(), i, i + n), block, turned);
                for (Index k = 0; k < n; ++k) {
                    T* const row = &rows(first + ordered.row(i + k), block.head, d);
                    if constexpr (std::is_same_v<E, T>) {
                        stream_run(turned[k], row, dims);
                    } else {
                        convert(turned[k], row, dims);
                    }
                }
            }
        }
    }
    streamed();
}

} // namespace cellar::detail
