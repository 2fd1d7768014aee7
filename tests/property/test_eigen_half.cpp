// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"
#include <cellar/backend/eigen.hpp>

namespace test_eigen_half {

TEST_CASE("StandardV of half on EigenBackend agrees with the naive model") {
    property::check_some_policies<cellar::StandardV<cellar::half>, cellar::EigenBackend>(
        "EigenBackend, StandardV<half>");
}

TEST_CASE("PermutedV of half on EigenBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<cellar::half>, cellar::EigenBackend>(
        "EigenBackend, PermutedV<half>");
}

} // namespace test_eigen_half
