// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar {

/// The upper half of a float: its 8 bits of exponent, 7 of fraction. A storage type: arithmetic is done in float.
///
/// Conversion from float rounds to nearest, ties to even; a NaN stays a NaN.
struct bfloat16 {
    std::uint16_t bits;

    bfloat16() = default;

    CELLAR_FUNCTION constexpr explicit bfloat16(float value) : bits{} {
        const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
        const std::uint32_t odd = word >> 16 & 1U;
        const std::uint32_t rounded = (word + 0x7fffU + odd) >> 16;
        const std::uint32_t nan = word >> 16 | 0x40U;
        bits = static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
    }

    CELLAR_FUNCTION constexpr explicit operator float() const {
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
    }

    /// The number whose float has these bits in its upper half.
    CELLAR_FUNCTION static constexpr bfloat16 from_bits(std::uint16_t bits) {
        bfloat16 value{};
        value.bits = bits;
        return value;
    }
};

using bf16 = bfloat16;

} // namespace cellar
