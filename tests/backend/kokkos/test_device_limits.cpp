// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Device work that is divided: several launches, full staging memory, little scratch memory.
#include "backend/kokkos/device_on_host.hpp"

#define CELLAR_BACKEND cellar_test::LateDeviceOfSmallLimits
#include "backend/agreement.hpp"
#include "backend/ladder.hpp"

namespace test_device_limits {

TEST_CASE("divided device work agrees with the Eigen backend") {
    cellar_test::check_agreement<cellar_test::LateDeviceOfSmallLimits>(2, 500);
}

} // namespace test_device_limits
