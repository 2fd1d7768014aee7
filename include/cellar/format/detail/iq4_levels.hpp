// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/half.hpp>
#include <cellar/format/detail/numbers.hpp>

#include <cstdint>

/// The 16 levels of iq4_nl.
namespace cellar::detail {

inline constexpr std::int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

/// For devices, which have no tables of the host: eight of them, the first one lowest.
constexpr std::uint64_t eight_levels(int first) {
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(iq4_levels[first + i])} << 8 * i;
    return word;
}
inline constexpr std::uint64_t lower_levels = eight_levels(0);
inline constexpr std::uint64_t upper_levels = eight_levels(8);

/// For vectors: the levels, and a heap of the middles between them, whose root has index 1.
struct Iq4Search {
    float levels[16] = {};
    float middles[16] = {};

    constexpr Iq4Search() {
        for (int code = 0; code < 16; ++code) levels[code] = iq4_levels[code];
        for (int step = 0; step < 4; ++step)
            for (int n = 0; n < 1 << step; ++n) {
                const int code = (2 * n + 1) << (3 - step);
                middles[(1 << step) + n] = (levels[code - 1] + levels[code]) / 2;
            }
    }
};
inline constexpr Iq4Search iq4_search{};

/// The scale of a block, from its largest value and from sums of weighted squares.
[[gnu::always_inline]] CELLAR_FUNCTION inline half iq4_scale(float largest, float of_values, float of_levels) {
    constexpr std::int32_t tiny = 0x26901d7d; // as a float: 1e-15
    constexpr std::int32_t infinity = 0x7f800000;
    const std::int32_t magnitude = magnitude_of(largest);
    const float finite = magnitude >= tiny && of_levels > 0 ? of_values / of_levels : 0;
    return static_cast<half>(magnitude < infinity ? finite : quiet_nan);
}

} // namespace cellar::detail
