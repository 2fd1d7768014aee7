// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "property/recurrent_trial.hpp"
#include <cellar/backend/kokkos.hpp>

#include <doctest/doctest.h>

namespace {

using Space = Kokkos::DefaultHostExecutionSpace;
using DeviceWorkOnHost =
    cellar::KokkosBackend<Space, Kokkos::HostSpace, cellar::KokkosDeviceWork<Space, Kokkos::HostSpace>>;

} // namespace

TEST_CASE("recurrent states of the host's cores agree with the naive model") {
    CHECK(property::recurrent::agrees_with_model<cellar::KokkosBackend<Space>>(60));
}

TEST_CASE("recurrent states by device work agree with the naive model") {
    CHECK(property::recurrent::agrees_with_model<DeviceWorkOnHost>(60));
}
