// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"
#include <cellar/backend/eigen.hpp>

namespace test_eigen_float {

TEST_CASE("StandardV of float on EigenBackend agrees with the naive model") {
    property::check_some_policies<cellar::StandardV<float>, cellar::EigenBackend>("EigenBackend, StandardV<float>");
}

TEST_CASE("PermutedV of float on EigenBackend agrees with the naive model") {
    property::check_some_policies<cellar::PermutedV<float>, cellar::EigenBackend>("EigenBackend, PermutedV<float>");
}

} // namespace test_eigen_float
