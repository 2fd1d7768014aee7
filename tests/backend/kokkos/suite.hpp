// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The tests of every Kokkos backend. A source file defines CELLAR_BACKEND and includes this.

#include "backend/agreement.hpp"
#include "backend/ladder.hpp"
#include "conformance/test_causal.cpp"
#include "property/matrix.hpp"
#include <cellar/backend/kokkos.hpp>

#include <string>

TEST_CASE_TEMPLATE("agrees with the Eigen backend on few cells", Backend, CELLAR_BACKEND) {
    cellar_test::check_agreement<Backend>(5, 150);
}

// Enough cells to give every thread work.
TEST_CASE_TEMPLATE("agrees with the Eigen backend on many cells", Backend, CELLAR_BACKEND) {
    cellar_test::check_agreement<Backend>(1, 3000);
}

TEST_CASE_TEMPLATE("StandardV agrees with the naive model", Backend, CELLAR_BACKEND) {
    property::check_some_policies<cellar::StandardV<float>, Backend>("KokkosBackend, StandardV<float>");
}

TEST_CASE_TEMPLATE("PermutedV agrees with the naive model", Backend, CELLAR_BACKEND) {
    property::check_some_policies<cellar::PermutedV<cellar::half>, Backend>("KokkosBackend, PermutedV<half>");
}
