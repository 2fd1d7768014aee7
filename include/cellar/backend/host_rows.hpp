// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/element.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// From [from, from + n) to [to, to + n), which do not overlap.
template <class From, class To>
void convert(const From* from, To* to, std::int64_t n) {
    if constexpr (std::is_same_v<From, To>) {
        if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To));
    } else {
        constexpr std::int64_t chunk = 16; // a loop of constant length becomes vector code at -O2 too
        const std::int64_t whole = n - n % chunk;
        for (std::int64_t i = 0; i < whole; i += chunk)
            for (std::int64_t k = i; k < i + chunk; ++k) to[k] = static_cast<To>(from[k]);
        for (std::int64_t i = whole; i < n; ++i) to[i] = static_cast<To>(from[i]);
    }
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

inline constexpr std::int64_t block_rows = 64;
inline constexpr std::int64_t block_dims = 32;

/// Calls `block(head, first d, dims, first row, rows)` for pieces that fit on the stack. There they are turned from
/// rows to columns: memory is visited cell after cell, and a row in pieces of a cache line and more. Without that, rows
/// a power of two apart would push one another out of the cache for every element.
template <class View, class Block>
void visit_blocks(const View& rows, Block block) {
    for (std::int64_t head = 0; head < rows.extent(1); ++head)
        for (std::int64_t d = 0; d < rows.extent(2); d += block_dims)
            for (std::int64_t i = 0; i < rows.extent(0); i += block_rows)
                block(head, d, std::min(block_dims, rows.extent(2) - d), i, std::min(block_rows, rows.extent(0) - i));
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
        visit_blocks(rows, [=](Index head, Index d, Index dims, Index first, Index n) {
            E block[block_rows][block_dims];
            const Cell* const to = cells.data() + first;
            for (Index i = 0; i < n; ++i) convert(&rows(first + i, head, d), block[i], dims);
            for (Index k = 0; k < dims; ++k)
                for (Index i = 0; i < n; ++i) memory[mapping(to[i], head, d + k)] = block[i][k];
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
        visit_blocks(rows, [=](Index head, Index d, Index dims, Index first, Index n) {
            E block[block_rows][block_dims];
            const Cell* const from = cells.data() + first;
            for (Index k = 0; k < dims; ++k)
                for (Index i = 0; i < n; ++i) block[i][k] = memory[mapping(from[i], head, d + k)];
            for (Index i = 0; i < n; ++i) convert(block[i], &rows(first + i, head, d), dims);
        });
    }
}

} // namespace cellar::detail
