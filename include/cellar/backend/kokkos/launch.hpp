// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/kernel/each_element.hpp>
#include <cellar/kernel/each_tile.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Launches kernels on a device. The names appear in Kokkos' tools; they are short enough for strings without an
// allocation.

namespace cellar::detail {

/// How many values a launch may have. Kokkos and the kernels count in 32 bits, and round up to whole strips and blocks
/// of threads.
inline constexpr std::int64_t max_launch_values = std::int64_t{1} << 30;

/// Sizes at which device work is divided. Tests take smaller ones.
struct DeviceLimits {
    /// The most values of a launch of more than one row.
    static constexpr std::int64_t values = max_launch_values;
    /// The least host memory from which a list is copied: the short lists of decode steps rarely fill it.
    static constexpr std::size_t staging_bytes = std::size_t{1} << 20;
    /// The size of scratch memory: small enough for a device's cache, large enough for a launch to pay.
    static constexpr std::int64_t scratch_bytes = std::int64_t{4} << 20;
    /// The least cells of a part of a history: their attention takes much longer than joining the part.
    static constexpr std::int64_t part_cells = 256;
    /// About as many teams share the attention of one sequence: enough for the largest devices.
    static constexpr std::int64_t sequence_items = 1024;
    /// The threads of a team, if the device allows that many.
    static constexpr int team_threads = 128;
    /// The threads that compute a checksum: about as many as the largest devices run at a time.
    static constexpr std::int32_t crc_threads = 1 << 16;
};

/// Kokkos passes kernels by value if they are smaller than 512 bytes, its own part included: 32 bytes for a range of
/// indices, 152 for teams. A larger one goes through constant memory, and the host waits for the previous kernel there.
template <class Policy>
inline constexpr std::size_t max_kernel_bytes = 424;
template <class... Properties>
inline constexpr std::size_t max_kernel_bytes<Kokkos::TeamPolicy<Properties...>> = 352;

template <class Policy, class Kernel>
void launch(const char* name, const Policy& policy, const Kernel& kernel) {
    static_assert(sizeof(Kernel) <= max_kernel_bytes<Policy>, "the kernel is too large to be enqueued without a wait");
    Kokkos::parallel_for(name, policy, kernel);
}

/// Teams of up to `threads` threads, if the device allows that many, each with `bytes` of shared memory.
template <class ExecutionSpace, class Kernel>
void launch_teams(const char* name, const ExecutionSpace& space, const Kernel& kernel, std::int32_t teams, int threads,
                  std::int64_t bytes) {
    using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
    const auto shared = Kokkos::PerTeam(static_cast<std::size_t>(bytes));
    const int most =
        Policy{space, teams, 1}.set_scratch_size(0, shared).team_size_max(kernel, Kokkos::ParallelForTag{});
    Policy policy{space, teams, std::min(most, threads)};
    launch(name, policy.set_scratch_size(0, shared), kernel);
}

/// Calls f(first, count) for ranges that make up [0, cells), each of at most `Limits::values` values or of one row.
template <class Limits, class F>
void for_each_launch(std::int64_t cells, std::int64_t heads, std::int64_t dim, F f) {
    if (heads == 0 || dim == 0) return;
    CELLAR_EXPECTS(max_launch_values / heads / dim > 0, "KokkosBackend: rows of [", heads, ", ", dim,
                   "], expected at most ", max_launch_values, " elements");
    const std::int64_t most = std::max<std::int64_t>(Limits::values / heads / dim, 1);
    for (std::int64_t first = 0; first < cells; first += most)
        f(first, static_cast<std::int32_t>(std::min(most, cells - first)));
}

/// d is fastest, or the cell if `CellsFastest`. One launch, unless there are more values than `Limits` allows.
template <class Limits, bool CellsFastest, class ExecutionSpace, class Kernel>
void launch_elements(const char* name, const ExecutionSpace& space, const Kernel& kernel, std::int64_t cells,
                     std::int64_t heads, std::int64_t dim) {
    using Each = kernel::EachElement<Kernel, CellsFastest>;
    using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int32_t>>;
    for_each_launch<Limits>(cells, heads, dim, [&](std::int64_t first, std::int32_t count) {
        const Each each{kernel, first, count, static_cast<std::int32_t>(heads), static_cast<std::int32_t>(dim)};
        launch(name, Policy(space, 0, each.size()), each);
    });
}

/// For kernels that read along the dims and write along the cells, or the other way round.
template <class Limits, bool ReadsAlongDims, class ExecutionSpace, class Kernel>
void launch_tiles(const ExecutionSpace& space, const Kernel& kernel, std::int64_t cells, std::int64_t heads,
                  std::int64_t dim) {
    using Each = kernel::EachTile<Kernel, ReadsAlongDims, typename Kokkos::TeamPolicy<ExecutionSpace>::member_type>;
    for_each_launch<Limits>(cells, heads, dim, [&](std::int64_t first, std::int32_t count) {
        const Each each{kernel, first, count, static_cast<std::int32_t>(heads), static_cast<std::int32_t>(dim)};
        launch_teams("cellar: tiles", space, each, each.tiles(), Each::threads, Each::bytes);
    });
}

} // namespace cellar::detail
