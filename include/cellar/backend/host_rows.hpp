// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/element.hpp>
#include <cellar/layout/mapping.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
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
        std::int64_t done = 0;
        for (; n - done >= chunk; done += chunk)
            for (std::int64_t i = 0; i < chunk; ++i) to[done + i] = static_cast<To>(from[done + i]);
        for (; done < n; ++done) to[done] = static_cast<To>(from[done]);
    }
}

/// How many cells from cells[first] on are neighbours in memory too.
inline std::int64_t run_length(std::span<const Cell> cells, std::int64_t first) {
    const Cell* const run = cells.data() + first;
    std::int64_t n = 1;
    while (first + n < std::ssize(cells) && run[n] == run[0] + n) ++n;
    return n;
}

/// Calls `strip(row element, memory offset, n)` for the pieces of `rows` that lie together both
/// there and in memory; `element(i, head, d)` where there are none.
template <class Mapping, class View, class Strip, class Element>
void visit_strips(const Mapping& mapping, std::span<const Cell> cells, const View& rows, Strip strip, Element element) {
    const std::int64_t row = rows.extent(1) * rows.extent(2);
    const bool dense = rows.is_contiguous();
    for (std::int64_t i = 0, run = 0; i < std::ssize(cells); i += run) {
        run = dense ? run_length(cells, i) : 1;
        const Cell cell = cells[static_cast<std::size_t>(i)];
        if (dense) {
            strip(&rows(i, 0, 0), mapping(cell, 0, 0), run * row);
            continue;
        }
        for (std::int64_t head = 0; head < rows.extent(1); ++head) {
            if (rows.stride(2) == 1) {
                strip(&rows(i, head, 0), mapping(cell, head, 0), rows.extent(2));
            } else {
                for (std::int64_t d = 0; d < rows.extent(2); ++d) element(i, head, d);
            }
        }
    }
}

/// Calls `element(i, head, d)` so that memory is visited cell after cell, for a few rows at a time:
/// they stay in the cache while their dims are taken one by one.
template <class View, class Element>
void visit_tiles(const View& rows, Element element) {
    constexpr std::int64_t tile = 16;
    for (std::int64_t first = 0; first < rows.extent(0); first += tile) {
        const std::int64_t last = first + tile < rows.extent(0) ? first + tile : rows.extent(0);
        for (std::int64_t head = 0; head < rows.extent(1); ++head)
            for (std::int64_t d = 0; d < rows.extent(2); ++d)
                for (std::int64_t i = first; i < last; ++i) element(i, head, d);
    }
}

/// Row i of `rows` to cells[i].
template <class Mapping, class E, class T>
void scatter_rows(const Mapping& mapping, E* memory, std::span<const Cell> cells, StridedView<const T, 3> rows) {
    const kernel::Scatter<Mapping, E, T> element{mapping, memory, cells.data(), rows};
    if constexpr (Mapping::contiguous_rows) {
        const auto strip = [=](const T* row, std::int64_t offset, std::int64_t n) { convert(row, memory + offset, n); };
        visit_strips(mapping, cells, rows, strip, element);
    } else {
        visit_tiles(rows, element);
    }
}

/// The row of cells[i] to row i of `rows`.
template <class Mapping, class E, class T>
void gather_rows(const Mapping& mapping, const E* memory, std::span<const Cell> cells, StridedView<T, 3> rows) {
    const kernel::Gather<Mapping, E, T> element{mapping, memory, cells.data(), rows};
    if constexpr (Mapping::contiguous_rows) {
        const auto strip = [=](T* row, std::int64_t offset, std::int64_t n) { convert(memory + offset, row, n); };
        visit_strips(mapping, cells, rows, strip, element);
    } else {
        visit_tiles(rows, element);
    }
}

} // namespace cellar::detail
