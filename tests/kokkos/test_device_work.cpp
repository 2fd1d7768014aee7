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
#include "backend/agreement.hpp"
#include "backend/ladder.hpp"
#include "property/matrix.hpp"

TEST_CASE("device work agrees with the Eigen backend") {
    cellar_test::check_agreement<DeviceWorkOnHost>(2, 500);
}

TEST_CASE("device work agrees with the naive model") {
    using Layout = cellar::PermutedV<cellar::half>;
    using Shift = property::Rotating<cellar::Neox>;
    CHECK(
        agrees_with_model(property::combination<Layout, property::Sliding<0>, Shift, DeviceWorkOnHost>("device work")));
}
