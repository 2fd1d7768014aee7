// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program, built without Kokkos.
#include "commands.hpp"
#include "generate_command.hpp"

#include <doctest/doctest.h>

namespace test_generate_no_kokkos {

TEST_CASE("generate without Kokkos: the Kokkos backend is refused") {
    check_refused(generate("--backend kokkos --tokens 1"), 1, "built without Kokkos");
}

} // namespace test_generate_no_kokkos
