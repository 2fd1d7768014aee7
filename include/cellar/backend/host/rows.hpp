// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/lines.hpp>
#include <cellar/backend/host/ordered_cells.hpp>
#include <cellar/backend/host/strips.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace cellar::detail {

/// Rows [begin, end).
template <class T>
StridedView<T, 3> rows_from(StridedView<T, 3> rows, std::int64_t begin, std::int64_t end) {
    rows.pointer += begin * rows.strides[0];
    rows.extents[0] = end - begin;
    return rows;
}

/// Applies a kernel to every element: the fallback for any mapping and any strides.
template <class View, class Kernel>
void apply_to_elements(const View& rows, const Kernel& kernel) {
    for (std::int64_t i = 0; i < rows.extent(0); ++i)
        for (std::int64_t head = 0; head < rows.extent(1); ++head)
            for (std::int64_t d = 0; d < rows.extent(2); ++d) kernel::apply(kernel, i, head, d);
}

/// Calls `piece(i, head, offset, n)` for pieces that are contiguous both in `rows`, from (i, head, 0) on, and in
/// memory: runs of cells if the rows are dense and contiguous in memory, else single heads.
template <class Mapping, class View, class Piece>
void visit_pieces(const Mapping& mapping, std::span<const Cell> cells, const View& rows, Piece piece) {
    const bool dense = contiguous_rows<Mapping> && rows.is_contiguous();
    for (std::int64_t i = 0, run = 0; i < std::ssize(cells); i += run) {
        run = dense ? run_length(cells, i) : 1;
        const Cell cell = cells[static_cast<std::size_t>(i)];
        if (dense) {
            piece(i, 0, mapping(cell, 0, 0), run * rows.extent(1) * rows.extent(2));
        } else {
            for (std::int64_t head = 0; head < rows.extent(1); ++head)
                piece(i, head, mapping(cell, head, 0), rows.extent(2));
        }
    }
}

/// Writes row i of `rows` to cells[i].
template <class Mapping, class E, class T>
void scatter_rows(const Mapping& mapping, E* memory, std::span<const Cell> cells, StridedView<const T, 3> rows) {
    if (contiguous_heads<Mapping> && rows.stride(2) == 1) {
        // Large writes bypass the caches to keep the model's working set there; small ones are read again soon.
        constexpr std::int64_t large = std::int64_t{256} * 1024 / std::int64_t{sizeof(E)};
        const bool is_large = rows.size() >= large;
        visit_pieces(mapping, cells, rows, [=](auto i, auto head, auto offset, auto n) {
            if (!is_large) return convert_run(&rows(i, head, 0), memory + offset, n);
            stream(&rows(i, head, 0), memory + offset, n);
        });
        if (is_large) streamed();
        return;
    }
    if constexpr (contiguous_cells<Mapping>)
        if (rows.stride(2) == 1) return scatter_strips(mapping, memory, cells, rows);
    apply_to_elements(rows, kernel::Scatter<Mapping, E, T>{mapping, memory, {cells.data()}, rows});
}

/// The number of parts that `gather_rows` can be divided into: strips of cells, so that no two threads read the same,
/// or rows.
template <class Mapping>
std::int64_t gather_parts(const Mapping& mapping, std::span<const Cell> cells) {
    if constexpr (contiguous_cells<Mapping>) return strips_of(mapping);
    return std::ssize(cells);
}

/// Reads cells[i] into row i of `rows`; parts [begin, end) of that.
template <class Mapping, class E, class T>
void gather_rows(const Mapping& mapping, const E* memory, std::span<const Cell> cells, StridedView<T, 3> rows,
                 std::int64_t begin, std::int64_t end) {
    if constexpr (contiguous_cells<Mapping>) {
        if (rows.stride(2) == 1) return gather_strips(mapping, memory, cells, rows, begin, end);
        const kernel::Gather<Mapping, E, T> gather{mapping, memory, {cells.data()}, rows};
        for (std::int64_t strip = begin; strip < end; ++strip)
            for (std::int64_t i = 0; i < rows.extent(0); ++i)
                kernel::apply(gather, i, strip / mapping.dim(), strip % mapping.dim());
    } else {
        cells = cells_from(cells, begin, end);
        rows = rows_from(rows, begin, end);
        if (contiguous_heads<Mapping> && rows.stride(2) == 1) {
            // The processor's own prefetcher does not predict the next run. So the last rows of each run are copied one
            // by one, and prefetch rows about 8 KiB after them.
            const std::int64_t row = std::max<std::int64_t>(rows.extent(1) * rows.extent(2), 1);
            const std::int64_t ahead = std::max<std::int64_t>(8192 / (row * std::int64_t{sizeof(E)}), 1);
            visit_pieces(mapping, cells, rows, [=](auto i, auto head, auto offset, auto n) {
                const std::int64_t run = std::max<std::int64_t>(n / row, 1);
                const std::int64_t first = std::max<std::int64_t>(run - ahead, 0);
                stream(memory + offset, &rows(i, head, 0), first * row);
                for (std::int64_t k = first; k < run; ++k) {
                    const std::int64_t later = std::min(i + k + ahead, std::ssize(cells) - 1);
                    stream(memory + offset + k * row, &rows(i + k, head, 0), std::min(n, row),
                           memory + mapping(cells[static_cast<std::size_t>(later)], head, 0));
                }
            });
            streamed();
        } else {
            apply_to_elements(rows, kernel::Gather<Mapping, E, T>{mapping, memory, {cells.data()}, rows});
        }
    }
}

} // namespace cellar::detail
