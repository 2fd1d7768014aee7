// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"

namespace test_host_float {

TEST_CASE("StandardV of float on HostBackend agrees with the naive model") {
    property::check_policies<cellar::StandardV<float>, cellar::HostBackend>("HostBackend, StandardV<float>");
}

TEST_CASE("PermutedV of float on HostBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<float>, cellar::HostBackend>("HostBackend, PermutedV<float>");
}

} // namespace test_host_float
