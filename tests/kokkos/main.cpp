// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define DOCTEST_CONFIG_IMPLEMENT
#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

// A buffer that outlives Kokkos makes it abort, and with it the test.
int main(int argc, char** argv) {
    const Kokkos::ScopeGuard kokkos{argc, argv};
    return doctest::Context{argc, argv}.run();
}
