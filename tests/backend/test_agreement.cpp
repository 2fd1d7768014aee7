// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/agreement.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

namespace test_agreement {

TEST_CASE("the host backend agrees with the Eigen backend") {
    cellar_test::check_agreement<cellar::HostBackend>(15, 150);
}

} // namespace test_agreement
