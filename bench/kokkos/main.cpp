// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layers.hpp"

#include <type_traits>

int main(int argc, char** argv) {
    const Kokkos::ScopeGuard kokkos{argc, argv};
    cellar::bench::real_time_only = !std::is_same_v<cellar::bench::Space::memory_space, Kokkos::HostSpace>;
    cellar::bench::add_rows();
    cellar::bench::add_decode();
    cellar::bench::add_attention();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
