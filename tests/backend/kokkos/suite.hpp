// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// All that a backend of Kokkos has to show. A source file defines CELLAR_BACKEND and includes this.

#include "backend/agreement.hpp"
#include "backend/ladder.hpp"
#include "conformance/test_causal.cpp"
#include "property/matrix.hpp"
#include <cellar/backend/kokkos.hpp>

#include <string>

TEST_CASE_TEMPLATE("agrees with the Eigen backend, in few cells", Backend, CELLAR_BACKEND) {
    cellar_test::check_agreement<Backend>(5, 150);
}

// Enough for every thread.
TEST_CASE_TEMPLATE("agrees with the Eigen backend, in many cells", Backend, CELLAR_BACKEND) {
    cellar_test::check_agreement<Backend>(1, 3000);
}

TEST_CASE_TEMPLATE("StandardV agrees with the naive model", Backend, CELLAR_BACKEND) {
    property::check_some_policies<cellar::StandardV<float>, Backend>("KokkosBackend, StandardV<float>");
}

TEST_CASE_TEMPLATE("PermutedV agrees with the naive model", Backend, CELLAR_BACKEND) {
    property::check_some_policies<cellar::PermutedV<cellar::half>, Backend>("KokkosBackend, PermutedV<half>");
}
