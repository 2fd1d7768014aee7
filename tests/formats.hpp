// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/half.hpp>
#include <cellar/element/storage_format.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

// Two storage formats for tests: blocks in one plane, and values in one plane with their scales in a second one.

namespace cellar_test {

inline float largest_of(std::span<const float> values) {
    float largest = 0;
    for (const float x : values) largest = std::max(largest, std::abs(x));
    return largest;
}
inline std::int8_t in_steps(float x, float step) {
    return static_cast<std::int8_t>(step == 0 ? 0 : std::clamp(std::round(x / step), -127.0F, 127.0F));
}

/// Blocks of 32 values, each with its own scale: 34 bytes, which are no power of two, and aligned to 2.
struct BlocksOf32 {
    struct unit {
        cellar::half scale;
        std::int8_t steps[32];

        friend bool operator==(const unit& a, const unit& b) { return std::memcmp(&a, &b, sizeof(unit)) == 0; }
    };
    static constexpr int values_per_unit = 32;
    static constexpr std::string_view name = "test_blocks_of_32";
    static constexpr double rounding = 1.6 / 254; ///< relative to the largest value

    static void encode(std::span<const float> values, std::span<unit> units) {
        for (std::size_t i = 0; i < units.size(); ++i) {
            const auto block = values.subspan(32 * i, 32);
            units[i].scale = static_cast<cellar::half>(largest_of(block) / 127);
            for (std::size_t k = 0; k < 32; ++k)
                units[i].steps[k] = in_steps(block[k], static_cast<float>(units[i].scale));
        }
    }
    static void decode(std::span<const unit> units, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(units[i / 32].scale) * static_cast<float>(units[i / 32].steps[i % 32]);
    }
};
static_assert(sizeof(BlocksOf32::unit) == 34 && cellar::StorageFormat<BlocksOf32>);

/// A byte for each value, and one scale for each head in a plane of their own.
struct ScaledHeads {
    using unit = std::int8_t;
    using scale = float;
    static constexpr int values_per_unit = 1;
    static constexpr int values_per_scale = cellar::whole_head;
    static constexpr std::string_view name = "test_scaled_heads";
    static constexpr double rounding = BlocksOf32::rounding;

    static void encode(std::span<const float> values, std::span<unit> units, std::span<scale> scales) {
        scales[0] = largest_of(values) / 127;
        for (std::size_t i = 0; i < values.size(); ++i) units[i] = in_steps(values[i], scales[0]);
    }
    static void decode(std::span<const unit> units, std::span<const scale> scales, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = scales[0] * static_cast<float>(units[i]);
    }
};
static_assert(cellar::StorageFormat<ScaledHeads>);

/// What the values of a head are once they were stored.
template <class Format>
void encode_and_decode(std::span<float> head) {
    if constexpr (requires { typename Format::scale; }) {
        std::vector<typename Format::unit> units(head.size() / Format::values_per_unit);
        const int count = cellar::detail::scales_in<Format>(static_cast<int>(head.size()));
        std::vector<typename Format::scale> scales(static_cast<std::size_t>(count));
        Format::encode(head, units, scales);
        Format::decode(units, scales, head);
    } else if constexpr (requires { typename Format::unit; }) {
        std::vector<typename Format::unit> units(head.size() / Format::values_per_unit);
        Format::encode(head, units);
        Format::decode(units, head);
    } else {
        for (float& x : head) x = static_cast<float>(static_cast<Format>(x));
    }
}
/// What rows of heads are once they were stored. Rows of no dimensions, as values are that lie in keys, stay empty.
template <class Format>
std::vector<float> stored(std::vector<float> rows, int dim) {
    const auto size = static_cast<std::size_t>(dim);
    for (std::size_t i = 0; dim != 0 && i < rows.size(); i += size)
        encode_and_decode<Format>(std::span{rows}.subspan(i, size));
    return rows;
}

} // namespace cellar_test
