// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/kernel/each_element.hpp>
#include <cellar/kernel/each_tile.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

// How kernels are launched on a device. The names are those that tools of Kokkos show, short enough for strings that
// need no memory.

namespace cellar::detail {

/// Kokkos passes what it launches by value if that is smaller than 512 bytes, its own part included. Anything larger goes
/// through constant memory, and the host waits for the kernel that was there before.
template <class Policy, class Kernel>
void launch(const char* name, const Policy& policy, const Kernel& kernel) {
    static_assert(sizeof(Kernel) <= 424, "the kernel is too large to be enqueued without a wait");
    Kokkos::parallel_for(name, policy, kernel);
}

/// Kernels of an index in [0, size).
template <class ExecutionSpace, class Kernel>
void launch_indices(const char* name, const ExecutionSpace& space, std::int64_t size, const Kernel& kernel) {
    using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
    if (size > 0) launch(name, Policy(space, 0, size), kernel);
}

/// One thread for each element, d fastest, or the cells if `CellsFastest`.
template <bool CellsFastest, class ExecutionSpace, class Kernel>
void launch_elements(const char* name, const ExecutionSpace& space, const Kernel& kernel, std::int64_t cells,
                     std::int64_t heads, std::int64_t dim) {
    const kernel::EachElement<Kernel, CellsFastest> each{kernel, cells, heads, dim};
    launch_indices(name, space, each.size(), each);
}

template <class Element, class ExecutionSpace, class Tile>
void launch_tiles(const ExecutionSpace& space, const Tile& tile) {
    using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
    Policy policy{space, static_cast<int>(tile.tiles()), Kokkos::AUTO};
    policy.set_scratch_size(0, Kokkos::PerTeam(Tile::bytes));
    launch("cellar: tiles", policy, kernel::EachTile<Tile, Element, typename Policy::member_type>{tile});
}

} // namespace cellar::detail
