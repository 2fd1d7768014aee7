// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention on a device, over random histories, compared with the backend for reference, which computes every element
// by itself, in double. Cases that say by themselves what must come out are in test_device_attention_cases.cpp.
#include "backend/kokkos/attention.hpp"
#include "layout/archetypes.hpp"

namespace test_device_attention {

using namespace cellar;
using cellar_test::check_attention;
using cellar_test::SmallLimits;
using cellar_test::TheDevice;
using cellar_test::WithLimits;

TEST_CASE("device: attention equals the definition: float") {
    check_attention<StandardV<float>, TheDevice>(20);
}

TEST_CASE("device: attention equals the definition: half, in a window with sinks, divided into many parts") {
    check_attention<StandardV<cellar::half>, WithLimits<TheDevice, SmallLimits>>(40, SlidingWindow<>{80, {.sinks = 3}},
                                                                                 4);
}

TEST_CASE("device: attention equals the definition: half, in blocks of cells") {
    check_attention<Blocked<cellar::half>, TheDevice>(20, FullCausal{}, 8);
}

TEST_CASE("device: attention equals the definition: bfloat16 with permuted values, in chunks") {
    check_attention<PermutedV<bfloat16>, TheDevice>(20, ChunkedAttention<>{24});
}

TEST_CASE("device: attention equals the definition: a mapping without any contiguity, divided into many parts") {
    check_attention<cellar_test::BackwardsLayout<float>, WithLimits<TheDevice, SmallLimits>>(20);
}

} // namespace test_device_attention
