// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define DOCTEST_CONFIG_IMPLEMENT
#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

// A buffer that outlives Kokkos makes it abort, and with it the test.
int main(int argc, char** argv) {
    // More threads than cores here and there: then they do not spin while they wait, and tests run side by side.
    const Kokkos::ScopeGuard kokkos{Kokkos::InitializationSettings{}.set_num_threads(4).set_disable_warnings(true)};
    return doctest::Context{argc, argv}.run();
}
