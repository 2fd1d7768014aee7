// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/late.hpp"
#include <cellar/backend/kokkos.hpp>

namespace cellar_test {

/// Device work on the host's cores, done at a fence, to test it on machines without a device.
using DeviceOnHost = cellar::KokkosBackend<Late>;
static_assert(DeviceOnHost::reaches<LateSpace> && !DeviceOnHost::reaches<Kokkos::HostSpace>);

} // namespace cellar_test
