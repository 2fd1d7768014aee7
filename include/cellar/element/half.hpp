// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar {

namespace detail {

// Devices and 64-bit ARM processors have an instruction for each direction, which compilers do not derive from the
// integer arithmetic below. On devices, the payload of a NaN may differ.
#if defined(__CUDA_ARCH__)
#define CELLAR_CONVERTS_HALF 1
__device__ inline std::uint16_t half_bits(float value) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ inline float float_of_half(std::uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
#elif defined(__HIP_DEVICE_COMPILE__)
#define CELLAR_CONVERTS_HALF 1
__device__ inline std::uint16_t half_bits(float value) {
    return __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value));
}
__device__ inline float float_of_half(std::uint16_t bits) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
#define CELLAR_CONVERTS_HALF 1
inline std::uint16_t half_bits(float value) {
    return __builtin_bit_cast(std::uint16_t, static_cast<__fp16>(value));
}
inline float float_of_half(std::uint16_t bits) {
    return static_cast<float>(__builtin_bit_cast(__fp16, bits));
}
#endif

} // namespace detail

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction. A storage type: arithmetic is done in float.
///
/// Conversion from float rounds to nearest, ties to even. Infinities, subnormals and the sign of zero are kept. A NaN
/// keeps its sign and the highest bits of its payload, and becomes quiet.
struct half {
    std::uint16_t bits;

    half() = default;

    CELLAR_FUNCTION constexpr explicit half(float value) : bits{} {
        const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
        const auto magnitude = static_cast<std::int32_t>(word & 0x7fffffffU);
#ifdef CELLAR_CONVERTS_HALF
        if (!__builtin_is_constant_evaluated()) {
            bits = detail::half_bits(value);
            return;
        }
#endif
        const std::int32_t finite = magnitude < two_to_16 ? magnitude : two_to_16; // 2^16 becomes infinity
        const std::int32_t exponent = finite & 0x7f800000;
        const std::int32_t unit = exponent > two_to_minus_14 ? exponent : two_to_minus_14;
        // A half's unit has 10 bits of fraction. Adding a number 2^13 times as large leaves room in the float for just
        // those bits: the addition rounds to them, and the sum's fraction counts them.
        const std::int32_t large = unit + (13 << 23);
        const float sum = __builtin_bit_cast(float, finite) + __builtin_bit_cast(float, large);
        const std::int32_t count = __builtin_bit_cast(std::int32_t, sum) - large;
        const std::int32_t number = ((unit - two_to_minus_14) >> 13) + count;
        const std::int32_t is_nan = (infinity - magnitude) >> 31;
        const std::int32_t nan = 0x7e00 | (magnitude >> 13 & 0x1ff);
        const std::int32_t result = (number & ~is_nan) | (nan & is_nan);
        bits = static_cast<std::uint16_t>((word >> 16 & 0x8000U) | static_cast<std::uint32_t>(result));
    }

    CELLAR_FUNCTION constexpr explicit operator float() const {
        const std::int32_t magnitude = (bits & 0x7fff) << 13;
#ifdef CELLAR_CONVERTS_HALF
        if (!__builtin_is_constant_evaluated()) return detail::float_of_half(bits);
#endif
        // A subnormal lacks the leading one that a float's exponent implies. It is added here and subtracted again.
        const std::int32_t subnormal = (magnitude - (1 << 23)) >> 31;
        const std::int32_t larger = magnitude + (112 << 23) + (subnormal & (1 << 23));
        const std::int32_t taken_off = subnormal & two_to_minus_14;
        const float number = __builtin_bit_cast(float, larger) - __builtin_bit_cast(float, taken_off);
        const std::int32_t special = ((31 << 23) - 1 - magnitude) >> 31 & infinity; // an infinity or a NaN
        const std::int32_t quiet = ((31 << 23) - magnitude) >> 31 & quiet_nan;
        const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
        return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, number)
                                             | static_cast<std::uint32_t>(special | quiet) | sign);
    }

    /// The number with these bits of IEEE binary16.
    CELLAR_FUNCTION static constexpr half from_bits(std::uint16_t bits) {
        half value{};
        value.bits = bits;
        return value;
    }

private:
    // As the bits of a float. Every condition above selects between integers, so that loops over conversions compile to
    // vector code without branches.
    static constexpr std::int32_t two_to_minus_14 = 113 << 23; // the smallest normal half
    static constexpr std::int32_t two_to_16 = 143 << 23;       // twice the largest power of two
    static constexpr std::int32_t infinity = 255 << 23;
    static constexpr std::int32_t quiet_nan = 1 << 22; // the bit that tells it from a signalling NaN
};

#undef CELLAR_CONVERTS_HALF

} // namespace cellar
