// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"
#include <cellar/backend/eigen.hpp>

namespace test_eigen_bfloat16 {

TEST_CASE("StandardV of bfloat16 on EigenBackend agrees with the naive model") {
    property::check_some_policies<cellar::StandardV<cellar::bfloat16>, cellar::EigenBackend>(
        "EigenBackend, StandardV<bfloat16>");
}

TEST_CASE("PermutedV of bfloat16 on EigenBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<cellar::bfloat16>, cellar::EigenBackend>(
        "EigenBackend, PermutedV<bfloat16>");
}

} // namespace test_eigen_bfloat16
