// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/kokkos/device_rows.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/unit_heads.hpp>
#include <cellar/layout/stored_units.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Units on a device: moved as words, and encoded and decoded by teams. All functions enqueue.

namespace cellar::detail {

/// The largest word that units consist of, whatever they mean.
template <class U>
using UnitWord = std::conditional_t<sizeof(U) % 4 == 0, kernel::SlotPart<std::uint32_t>,
                                    std::conditional_t<sizeof(U) % 2 == 0, kernel::SlotPart<std::uint16_t>, std::byte>>;

/// True if they are moved as words.
template <class E>
inline constexpr bool moves_in_words = !std::is_arithmetic_v<E> && !Element<E> && !std::is_same_v<E, UnitWord<E>>;

template <class U, class Mapping>
Mapping in_words(const Mapping& mapping) {
    return {mapping.cells(), mapping.heads(), mapping.dim() * static_cast<int>(sizeof(U) / sizeof(UnitWord<U>))};
}
template <class U>
auto* in_words(U* units) {
    using Part = UnitWord<std::remove_const_t<U>>;
    return reinterpret_cast<std::conditional_t<std::is_const_v<U>, const Part, Part>*>(units);
}
/// Rows whose heads are contiguous.
template <class U>
auto in_words(const StridedView<U, 3>& rows) {
    constexpr auto words = static_cast<std::int64_t>(sizeof(U) / sizeof(UnitWord<std::remove_const_t<U>>));
    using Words = StridedView<std::remove_pointer_t<decltype(in_words(rows.pointer))>, 3>;
    return Words{in_words(rows.pointer),
                 {rows.extent(0), rows.extent(1), rows.extent(2) * words},
                 {rows.stride(0) * words, rows.stride(1) * words, 1}};
}

/// `launch_rows` of units.
template <class Limits, class ExecutionSpace, class Mapping, class U, class T>
void launch_unit_rows(const ExecutionSpace& space, const Mapping& mapping, U* units, kernel::CellList cells,
                      const StridedView<T, 3>& rows) {
    using Unit = std::remove_const_t<U>;
    if (rows.stride(2) == 1)
        return launch_rows<Limits>(space, in_words<Unit>(mapping), in_words(units), cells, in_words(rows));
    const RowKernel<std::is_const_v<T>, Mapping, Unit, Unit> kernel{mapping, units, cells, rows};
    launch_elements<Limits, false>("cellar", space, kernel, rows.extent(0), rows.extent(1), rows.extent(2));
}

/// What kernels take of planes; the scales are those of the second one.
template <class F, class Mapping, class Buffer, class... Scales>
StoredUnits<F, Mapping, true> units_of(const Plane<Mapping, Buffer>& units, const Scales&... scales) {
    StoredUnits<F, Mapping, true> made{units.mapping, const_cast<unit_of<F>*>(units.memory.data()), nullptr};
    ((made.scale_data = const_cast<scale_of<F>*>(scales.memory.data())), ...);
    return made;
}

/// Calls make(cells, first, count) for each launch, which returns a kernel with `heads`.
template <class Limits, class ExecutionSpace, class Units, class Make>
void launch_heads(const char* name, const ExecutionSpace& space, const Units& units, kernel::CellList cells,
                  std::int64_t count, Make make) {
    for_each_launch<Limits>(count, units.mapping.heads(), units.head_dim(), [&](std::int64_t first, std::int32_t some) {
        const auto kernel = make(kernel::UnitHeads<Units>{units, {cells.cells + first}, some}, first, some);
        launch_teams(name, space, kernel, kernel.heads.teams(), Limits::team_threads, kernel.heads.bytes());
    });
}

} // namespace cellar::detail
