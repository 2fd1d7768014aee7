// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"

namespace test_host_half {

TEST_CASE("StandardV of half on HostBackend agrees with the naive model") {
    property::check_some_policies<cellar::StandardV<cellar::half>, cellar::HostBackend>("HostBackend, StandardV<half>");
}

TEST_CASE("PermutedV of half on HostBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<cellar::half>, cellar::HostBackend>("HostBackend, PermutedV<half>");
}

} // namespace test_host_half
