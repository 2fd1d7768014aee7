// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "stopwatch.hpp"
#include <cellar/base/ids.hpp>

/// Benchmarks are named job/state/sequences/cells/variant. 512 in place of the sequences means a prompt of 512 tokens.
namespace cellar::bench {

inline constexpr Cell capacities[] = {4 * 1024, 32 * 1024, 128 * 1024};

void add_passes();
void add_masks();
void add_sharing();
void add_removal();
void add_defragmentation();
void add_states();
void add_hybrids();
void add_model_loop();
void add_conversions();
void add_rotation();
void add_prefix();
void add_files();
void add_formats();
void add_offloading();
void add_attention();
void add_limits();

} // namespace cellar::bench
