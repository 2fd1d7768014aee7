// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"

/// The jobs whose speed depends on the processor's vector instructions: scripts/bench --native.
int main(int argc, char** argv) {
    cellar::bench::add_masks();
    cellar::bench::add_conversions();
    cellar::bench::add_rotation();
    cellar::bench::add_attention();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
