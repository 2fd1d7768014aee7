// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define DOCTEST_CONFIG_IMPLEMENT
#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cstdio>

namespace {

/// Whether the device that Kokkos was built for is there, if it was built for one.
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

// A buffer that outlives Kokkos makes it abort, and with it the test.
int main(int argc, char** argv) {
    if (!has_device()) {
        std::puts("nothing was tested: there is no device that Kokkos could work on");
        return 1;
    }
    // More threads than cores here and there: then they do not spin while they wait, and tests run side by side.
    const Kokkos::ScopeGuard kokkos{Kokkos::InitializationSettings{}.set_num_threads(4).set_disable_warnings(true)};
    return doctest::Context{argc, argv}.run();
}
