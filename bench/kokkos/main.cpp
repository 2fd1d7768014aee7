// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layers.hpp"

int main(int argc, char** argv) {
    const Kokkos::ScopeGuard kokkos{argc, argv};
    cellar::bench::add_rows();
    cellar::bench::add_decode();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
