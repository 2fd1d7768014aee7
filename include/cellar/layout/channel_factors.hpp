// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <vector>

namespace cellar {

/// What `put` divides the channels of a layer by: a factor for each head and element, or none. Large channels then do
/// not decide the scales of others. `ChannelCalibration` finds them.
struct ChannelFactors {
    std::vector<float> keys{};   ///< [kv_heads, key_dim]; elements that are rotated as a pair have the same
    std::vector<float> values{}; ///< [kv_heads, value_dim]
};

} // namespace cellar
