// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/kokkos/device_on_host.hpp"
#include "property/matrix.hpp"

#include <doctest/doctest.h>

namespace test_device_work {

TEST_CASE("device work agrees with the naive model") {
    using Layout = cellar::PermutedV<cellar::half>;
    using Shift = property::Rotating<cellar::Neox>;
    CHECK(agrees_with_model(
        property::combination<Layout, property::Sliding<0>, Shift, cellar_test::DeviceOnHost>("device work")));
}

} // namespace test_device_work
