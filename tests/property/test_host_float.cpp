// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"

namespace test_host_float {

// Every window with the other shifts: test_host_policies.cpp.
TEST_CASE("StandardV of float on HostBackend agrees with the naive model") {
    using Layout = cellar::StandardV<float>;
    property::check_windows<Layout, property::Adding, cellar::HostBackend>("HostBackend, StandardV<float>");
    property::check_some_policies<Layout, cellar::HostBackend>("HostBackend, StandardV<float>");
}

TEST_CASE("PermutedV of float on HostBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<float>, cellar::HostBackend>("HostBackend, PermutedV<float>");
}

} // namespace test_host_float
