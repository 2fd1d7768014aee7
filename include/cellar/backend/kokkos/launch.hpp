// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/kernel/each_element.hpp>
#include <cellar/kernel/each_tile.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>

// Launches kernels on a device. The names appear in Kokkos' tools; they are short enough for strings without an
// allocation.

namespace cellar::detail {

/// Kokkos passes kernels by value if they are smaller than 512 bytes, its own part included. A larger one goes through
/// constant memory, and the host waits for the previous kernel there.
template <class Policy, class Kernel>
void launch(const char* name, const Policy& policy, const Kernel& kernel) {
    static_assert(sizeof(Kernel) <= 424, "the kernel is too large to be enqueued without a wait");
    Kokkos::parallel_for(name, policy, kernel);
}

/// d is fastest, or the cell if `CellsFastest`. One launch, unless there are more values than 32 bits can count.
template <bool CellsFastest, class ExecutionSpace, class Kernel>
void launch_elements(const char* name, const ExecutionSpace& space, const Kernel& kernel, std::int64_t cells,
                     std::int64_t heads, std::int64_t dim) {
    using Each = kernel::EachElement<Kernel, CellsFastest>;
    using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int32_t>>;
    if (heads == 0 || dim == 0) return;
    const std::int64_t most = INT32_MAX / heads / dim;
    CELLAR_EXPECTS(most > 0, "KokkosBackend: rows of [", heads, ", ", dim, "], expected fewer than 2^31 elements");
    for (std::int64_t first = 0; first < cells; first += most) {
        const auto count = static_cast<std::int32_t>(std::min(most, cells - first));
        const Each each{kernel, first, count, static_cast<std::int32_t>(heads), static_cast<std::int32_t>(dim)};
        launch(name, Policy(space, 0, each.size()), each);
    }
}

/// For kernels that read along the dims and write along the cells, or the other way round.
template <bool ReadsAlongDims, class ExecutionSpace, class Kernel>
void launch_tiles(const ExecutionSpace& space, const Kernel& kernel, std::int64_t cells, std::int64_t heads,
                  std::int64_t dim) {
    using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
    using Each = kernel::EachTile<Kernel, ReadsAlongDims, typename Policy::member_type>;
    const Each each{kernel, static_cast<std::int32_t>(cells), static_cast<std::int32_t>(heads),
                    static_cast<std::int32_t>(dim)};
    const auto shared = Kokkos::PerTeam(Each::bytes);
    const int most =
        Policy{space, each.tiles(), 1}.set_scratch_size(0, shared).team_size_max(each, Kokkos::ParallelForTag{});
    Policy policy{space, each.tiles(), std::min(most, Each::threads)};
    launch("cellar: tiles", policy.set_scratch_size(0, shared), each);
}

} // namespace cellar::detail
