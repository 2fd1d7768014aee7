// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <concepts>
#include <cstdint>

namespace cellar {

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction. A storage type: arithmetic is done in
/// float.
///
/// Conversion from float rounds to nearest, ties to even, and keeps infinities, subnormals and the
/// sign of zero; a NaN stays a NaN. Both conversions are free of branches, so that loops over them
/// become vector code.
struct half {
    std::uint16_t bits;

    half() = default;

    CELLAR_FUNCTION constexpr explicit half(float value) : bits{} {
        const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
        const std::uint32_t magnitude = word & 0x7fffffffu;
        // The exponent moves from bias 127 to 15; adding half a unit, less one where the result is
        // even, rounds what the shift drops.
        const std::uint32_t odd = (magnitude >> 13) & 1u;
        const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
        // Below 2^-14 a half counts units of 2^-24, and so does the fraction of a float in
        // [0.5, 1): the addition rounds.
        const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
        const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, sum) - 0x3f000000u;
        const std::uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x1ffu);
        std::uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
        result = magnitude >= 0x47800000u ? 0x7c00u : result; // 2^16 and more
        result = magnitude > 0x7f800000u ? nan : result;
        bits = static_cast<std::uint16_t>(word >> 16 & 0x8000u) | static_cast<std::uint16_t>(result);
    }

    CELLAR_FUNCTION constexpr explicit operator float() const {
        const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
        const std::uint32_t normal = magnitude + (112u << 23);
        const float shifted = __builtin_bit_cast(float, magnitude + (113u << 23));
        const float difference = shifted - 0x1p-14f;
        const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, difference);
        std::uint32_t result = magnitude < (1u << 23) ? subnormal : normal;
        result = magnitude >= (31u << 23) ? magnitude + (224u << 23) : result; // infinity, NaN
        result |= static_cast<std::uint32_t>(bits & 0x8000u) << 16;
        return __builtin_bit_cast(float, result);
    }

    CELLAR_FUNCTION static constexpr half from_bits(std::uint16_t bits) {
        half value{};
        value.bits = bits;
        return value;
    }
};

/// The upper half of a float: its 8 bits of exponent, 7 of fraction. A storage type: arithmetic is
/// done in float.
///
/// Conversion from float rounds to nearest, ties to even; a NaN stays a NaN.
struct bfloat16 {
    std::uint16_t bits;

    bfloat16() = default;

    CELLAR_FUNCTION constexpr explicit bfloat16(float value) : bits{} {
        const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
        const std::uint32_t odd = word >> 16 & 1u;
        const std::uint32_t rounded = (word + 0x7fffu + odd) >> 16;
        const std::uint32_t nan = word >> 16 | 0x40u;
        bits = static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }

    CELLAR_FUNCTION constexpr explicit operator float() const {
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
    }

    CELLAR_FUNCTION static constexpr bfloat16 from_bits(std::uint16_t bits) {
        bfloat16 value{};
        value.bits = bits;
        return value;
    }
};

using bf16 = bfloat16;

/// What keys and values can be stored as: all convert to and from float by `static_cast`.
template <class E>
concept element = std::same_as<E, float> || std::same_as<E, half> || std::same_as<E, bfloat16>;

} // namespace cellar
