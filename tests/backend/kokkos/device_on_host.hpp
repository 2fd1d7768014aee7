// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos.hpp>

namespace cellar_test {

using HostSpace = Kokkos::DefaultHostExecutionSpace;

/// What devices do, done by the host's cores: where there is no device it is tested like this.
using DeviceOnHost = cellar::detail::BasicKokkosBackend<HostSpace, Kokkos::HostSpace,
                                                        cellar::detail::KokkosDeviceWork<HostSpace, Kokkos::HostSpace>>;

} // namespace cellar_test
