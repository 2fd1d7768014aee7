// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos.hpp>

namespace cellar_test {

using HostSpace = Kokkos::DefaultHostExecutionSpace;

/// Device work on the host's cores, to test it on machines without a device.
using DeviceOnHost = cellar::detail::BasicKokkosBackend<HostSpace, Kokkos::HostSpace,
                                                        cellar::detail::KokkosDeviceWork<HostSpace, Kokkos::HostSpace>>;

} // namespace cellar_test
