// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"

namespace test_host_bfloat16 {

TEST_CASE("StandardV of bfloat16 on HostBackend agrees with the naive model") {
    property::check_some_policies<cellar::StandardV<cellar::bfloat16>, cellar::HostBackend>(
        "HostBackend, StandardV<bfloat16>");
}

TEST_CASE("PermutedV of bfloat16 on HostBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<cellar::bfloat16>, cellar::HostBackend>(
        "HostBackend, PermutedV<bfloat16>");
}

} // namespace test_host_bfloat16
