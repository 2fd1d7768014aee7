// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/kokkos.hpp>

#include <utility>

namespace {

using Space = Kokkos::DefaultHostExecutionSpace;

// What devices do, done by the host's cores: where there is no device it is tested like this.
using DeviceWorkOnHost =
    cellar::KokkosBackend<Space, Kokkos::HostSpace, cellar::KokkosDeviceWork<Space, Kokkos::HostSpace>>;

} // namespace

#define CELLAR_BACKEND DeviceWorkOnHost
#include "kokkos/suite.hpp"
