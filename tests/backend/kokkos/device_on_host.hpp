// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/late.hpp"
#include <cellar/backend/kokkos.hpp>

namespace cellar_test {

/// Tiles are for rows in a memory where cells are contiguous; a tile kernel for another one could never be launched.
template <class Kernel, bool ReadsAlongDims, class Team>
    requires requires {
        &Kernel::mapping;
    }
inline constexpr bool may_run_in_teams<cellar::detail::kernel::EachTile<Kernel, ReadsAlongDims, Team>> =
    cellar::detail::contiguous_cells<decltype(Kernel::mapping)>;

} // namespace cellar_test

/// The work of `Late` runs on the host, so it reaches the host's memory.
template <>
struct cellar::detail::PinnedSpaceOf<cellar_test::Late, cellar_test::LateSpace> {
    using type = Kokkos::HostSpace;
};

namespace cellar_test {

/// Device work on the host's cores, done at a fence, to test it on machines without a device.
using LateDevice = cellar::KokkosBackend<Late>;
static_assert(LateDevice::reaches<LateSpace> && !LateDevice::reaches<Kokkos::HostSpace>);
static_assert(cellar::PinsHostMemory<LateDevice> && !cellar::PinsHostMemory<cellar::KokkosBackend<HostSpace>>);

/// The same, but done at once and in memory of the host, for tests that read keys and states where they lie.
using DeviceOnHost =
    cellar::KokkosBackend<HostSpace, Kokkos::HostSpace, cellar::detail::KokkosDeviceWork<HostSpace, Kokkos::HostSpace>>;

/// So small that most work is divided.
struct SmallLimits {
    static constexpr std::int64_t values = 3000;
    static constexpr std::size_t staging_bytes = 64;
    static constexpr std::int64_t scratch_bytes = 2000;
    static constexpr std::int64_t part_cells = 64;
    static constexpr std::int64_t sequence_items = 20;
    static constexpr int team_threads = 3;
    static constexpr std::int32_t crc_threads = 7;
};
template <class Backend, class Limits>
using WithLimits = cellar::KokkosBackend<
    typename Backend::execution_space, typename Backend::memory_space,
    cellar::detail::KokkosDeviceWork<typename Backend::execution_space, typename Backend::memory_space, Limits>>;
using LateDeviceOfSmallLimits = WithLimits<LateDevice, SmallLimits>;

/// A device, if Kokkos was built for one, else `Late`.
#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
using TheDevice = cellar::KokkosBackend<>;
#else
using TheDevice = LateDevice;
#endif

} // namespace cellar_test
