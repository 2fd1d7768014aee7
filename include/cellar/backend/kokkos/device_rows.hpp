// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/rotate.hpp>
#include <cellar/kernel/rotate_packs.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/mapping.hpp>

#include <cstdint>
#include <type_traits>

// Chooses a kernel: 16 bytes per thread for contiguous, aligned rows; tiles between contiguous rows and contiguous
// cells; else single elements. Lists of cells lie where kernels read them. All functions enqueue.

namespace cellar::detail {

/// With fewer cells, a tile would be nearly empty.
inline constexpr std::int64_t min_tile_cells = 16;

template <bool Puts, class Mapping, class Element, class T>
using RowKernel = std::conditional_t<Puts, kernel::Scatter<Mapping, Element, T>, kernel::Gather<Mapping, Element, T>>;

/// Writes row i of `rows` to cells(i) if the rows are constant; else reads cells(i) into row i.
template <class Limits, class ExecutionSpace, class Mapping, class E, class T>
void launch_rows(const ExecutionSpace& space, const Mapping& mapping, E* memory, kernel::CellList cells,
                 const StridedView<T, 3>& rows) {
    constexpr bool puts = std::is_const_v<T>;
    using Element = std::remove_const_t<E>;
    using Row = std::remove_const_t<T>;
    const std::int64_t heads = rows.extent(1);
    constexpr int width = kernel::pack_width<Element, Row>;
    if constexpr (contiguous_heads<Mapping>) {
        if (kernel::is_in_packs<width>(rows) && kernel::is_aligned_for_packs<width>(memory)) {
            const Mapping packs{mapping.cells(), mapping.heads(), mapping.dim() / width};
            const RowKernel<puts, Mapping, kernel::Pack<Element, width>, kernel::Pack<Row, width>> kernel{
                packs, reinterpret_cast<kernel::PackOf<width, E>*>(memory), cells, kernel::in_packs<width>(rows)};
            return launch_elements<Limits, false>("cellar: packs", space, kernel, rows.extent(0), heads, packs.dim());
        }
    }
    const RowKernel<puts, Mapping, Element, Row> kernel{mapping, memory, cells, rows};
    if constexpr (contiguous_cells<Mapping>)
        if (rows.stride(2) == 1 && rows.extent(0) >= min_tile_cells)
            return launch_tiles<Limits, puts>(space, kernel, rows.extent(0), heads, rows.extent(2));
    launch_elements<Limits, contiguous_cells<Mapping>>("cellar", space, kernel, rows.extent(0), heads, rows.extent(2));
}

/// A mapping of packs of so many elements. Rows that are contiguous count as those of one head.
template <int Width, class Mapping>
auto in_packs(const Mapping& mapping) {
    if constexpr (contiguous_rows<Mapping>) {
        return CellsHeadsDims{mapping.cells(), 1, mapping.heads() * mapping.dim() / Width};
    } else {
        return Mapping{mapping.cells(), mapping.heads(), mapping.dim() / Width};
    }
}

/// Copies cell from[i] to cell to[i] for i < count. No cell is both read and written.
template <class Limits, class ExecutionSpace, class Mapping, class E>
void launch_copy(const ExecutionSpace& space, const Mapping& mapping, E* memory, kernel::CellList from,
                 kernel::CellList to, std::int64_t count) {
    constexpr int width = kernel::pack_width<E, E>;
    if constexpr (contiguous_heads<Mapping>) {
        const int contiguous = contiguous_rows<Mapping> ? mapping.heads() * mapping.dim() : mapping.dim();
        if (contiguous % width == 0 && kernel::is_aligned_for_packs<width>(memory)) {
            using Pack = kernel::Pack<E, width>;
            const auto packs = in_packs<width>(mapping);
            const kernel::CopyCell<std::remove_const_t<decltype(packs)>, Pack> copy{
                packs, reinterpret_cast<Pack*>(memory), from, to};
            return launch_elements<Limits, false>("cellar: packs", space, copy, count, packs.heads(), packs.dim());
        }
    }
    const kernel::CopyCell<Mapping, E> copy{mapping, memory, from, to};
    launch_elements<Limits, contiguous_cells<Mapping>>("cellar", space, copy, count, mapping.heads(), mapping.dim());
}

/// Rotates the keys of cells[i] for i < count, by the factors of all pairs.
template <class Limits, class ExecutionSpace, class Mapping, class E, class Rotation, class Factor>
void launch_rotate(const ExecutionSpace& space, const Mapping& mapping, E* memory, const Rotation& rotation,
                   const Factor* factors, kernel::CellList cells, std::int64_t count) {
    if constexpr (contiguous_heads<Mapping>) {
        constexpr int width = kernel::pack_width<E, E>;
        const auto launch_packs = [&](auto rotate) {
            launch_elements<Limits, false>("cellar: rotate", space, rotate, count, mapping.heads(),
                                           rotation.pairs() / width);
        };
        using enum PairPlaces;
        if (mapping.dim() % width == 0 && kernel::is_aligned_for_packs<width>(memory)) {
            const PairPlaces places = kernel::places_in_packs<width>(rotation);
            if (places == apart)
                return launch_packs(kernel::RotatePacks<Mapping, E, width, apart, Rotation, Factor>{
                    mapping, memory, rotation, factors, cells});
            if (places == neighbours)
                return launch_packs(kernel::RotatePacks<Mapping, E, width, neighbours, Rotation, Factor>{
                    mapping, memory, rotation, factors, cells});
        }
    }
    const kernel::Rotate<Mapping, E, Rotation, Factor, kernel::CellList> rotate{mapping, memory, rotation, factors,
                                                                                cells};
    launch_elements<Limits, contiguous_cells<Mapping>>("cellar: rotate", space, rotate, count, mapping.heads(),
                                                       rotation.pairs());
}

} // namespace cellar::detail
