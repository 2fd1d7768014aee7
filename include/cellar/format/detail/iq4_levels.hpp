// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/format/detail/nearest_level.hpp>
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

/// For vectors: the levels, and which of them is nearest to half of an integer that is rounded down; of two, the higher
/// one.
inline constexpr ByteTable iq4_level_bytes = ByteTable::of([](int code) { return iq4_levels[code]; });
inline constexpr NearestLevel iq4_nearest =
    NearestLevel::of([](int i) { return iq4_levels[i] + iq4_levels[i + 1]; }, 15);

/// The scales of blocks, from their largest values and from sums of weighted squares. `Float` and `Int` may be vectors.
template <class Float, class Int>
[[gnu::always_inline]] CELLAR_FUNCTION inline Float iq4_scale(Float largest, Float of_values, Float of_levels) {
    constexpr std::int32_t tiny = 0x26901d7d; // as a float: 1e-15
    constexpr std::int32_t infinity = 0x7f800000;
    const Int magnitude = __builtin_bit_cast(Int, largest) & INT32_MAX;
    const Float finite = ((magnitude >= tiny) & (of_levels > 0)) ? of_values / of_levels : Float{};
    return magnitude < infinity ? finite : Float{} + quiet_nan;
}

} // namespace cellar::detail
