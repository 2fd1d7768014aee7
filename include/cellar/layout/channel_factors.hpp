// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <vector>

namespace cellar {

/// What `put` divides the channels of a layer by: a factor for each head and element, or none. Large channels then do
/// not decide the scales of others. `ChannelCalibration` finds them.
struct ChannelFactors {
    std::vector<float> keys{};   ///< [kv_heads, key_dim]; elements that are rotated as a pair have the same
    std::vector<float> values{}; ///< [kv_heads, value_dim]
};

namespace detail {

constexpr bool is_channel_factor(float factor) {
    return factor >= 0x1p-40F && factor <= 0x1p40F;
}

/// Elements of a key.
struct ElementPair {
    int first;
    int second;
};
/// Two that are rotated as a pair, and have different factors in some head; twice the same if there are none. The
/// rotation of a pair commutes with one factor for both.
template <class Rotation>
constexpr ElementPair unequal_pair(const std::vector<float>& factors, int dim, const Rotation& rotation) {
    for (std::size_t head = 0; head < factors.size(); head += static_cast<std::size_t>(dim))
        for (int pair = 0; pair < rotation.pairs(); ++pair) {
            const ElementPair both{rotation.first(pair), rotation.second(pair)};
            if (factors[head + static_cast<std::size_t>(both.first)]
                != factors[head + static_cast<std::size_t>(both.second)])
                return both;
        }
    return {0, 0};
}

} // namespace detail

} // namespace cellar
