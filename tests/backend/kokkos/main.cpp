// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define DOCTEST_CONFIG_IMPLEMENT
#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cstdio>

namespace {

/// False if Kokkos was built for a device and this machine has none.
bool has_device() {
    int devices = 1;
#if defined(KOKKOS_ENABLE_CUDA)
    if (cudaGetDeviceCount(&devices) != cudaSuccess) return false;
#elif defined(KOKKOS_ENABLE_HIP)
    if (hipGetDeviceCount(&devices) != hipSuccess) return false;
#endif
    return devices > 0;
}

} // namespace

// Kokkos aborts if a buffer outlives it, so the test fails then.
int main(int argc, char** argv) {
    if (!has_device()) {
        std::puts("nothing was tested: no device was found");
        return 1;
    }
    // On small machines these are more threads than cores. They then wait without spinning, and tests can run in
    // parallel.
    const Kokkos::ScopeGuard kokkos{Kokkos::InitializationSettings{}.set_num_threads(4).set_disable_warnings(true)};
    return doctest::Context{argc, argv}.run();
}
