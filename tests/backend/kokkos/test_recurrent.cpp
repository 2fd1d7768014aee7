// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/kokkos/device_on_host.hpp"
#include "property/recurrent_trial.hpp"

#include <doctest/doctest.h>

namespace test_recurrent {

TEST_CASE("recurrent states by host work agree with the naive model") {
    CHECK(property::recurrent::agrees_with_model<cellar::KokkosBackend<cellar_test::HostSpace>>(60));
}

TEST_CASE("recurrent states by device work agree with the naive model") {
    CHECK(property::recurrent::agrees_with_model<cellar_test::DeviceOnHost>(60));
}

} // namespace test_recurrent
