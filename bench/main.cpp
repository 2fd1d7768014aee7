// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"

int main(int argc, char** argv) {
    cellar::bench::add_passes();
    cellar::bench::add_masks();
    cellar::bench::add_sharing();
    cellar::bench::add_removal();
    cellar::bench::add_defragmentation();
    cellar::bench::add_states();
    cellar::bench::add_hybrids();
    cellar::bench::add_prefix();
    cellar::bench::add_model_loop();
    cellar::bench::add_conversions();
    cellar::bench::add_rotation();
    cellar::bench::add_files();
    cellar::bench::add_formats();
    cellar::bench::add_offloading();
    cellar::bench::add_attention();
    cellar::bench::add_limits();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
