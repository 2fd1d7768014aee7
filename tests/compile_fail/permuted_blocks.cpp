// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: units of several values would lie along the cells
#include "../formats.hpp"
#include <cellar/cellar.hpp>

using namespace cellar;

#ifdef CORRECTED
using Layout = PermutedV<cellar_test::BlocksOf32, half>;
#else
using Layout = PermutedV<half, cellar_test::BlocksOf32>;
#endif

void make() {
    Cache<Layout, FullCausal, UnrotatedShift, HostBackend> cache{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                                                 {.capacity = 4}};
}
