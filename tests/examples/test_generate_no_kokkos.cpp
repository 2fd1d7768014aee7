// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The command where Kokkos is not installed.
#include "commands.hpp"

#include <doctest/doctest.h>

TEST_CASE("generate without Kokkos: says so") {
    check_refused(generate("--backend kokkos --tokens 1"), 1, "built without Kokkos");
}
