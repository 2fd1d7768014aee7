// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

/// Arithmetic that formats share, for blocks of N values. All of it is inlined into loops for the processor at hand. No
/// product is added to anything before it has been compared or converted, so compilers cannot fuse the two: the bits
/// are the same everywhere.
namespace cellar::detail {

/// The magnitude of a float as an integer, of the same order. An infinity is larger than all numbers, a NaN larger than
/// an infinity.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::int32_t magnitude_of(float x) {
    return __builtin_bit_cast(std::int32_t, x) & INT32_MAX;
}

/// The largest magnitude; a NaN if there is one.
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline float largest_magnitude(const float* values) {
    std::int32_t largest = 0;
    for (int i = 0; i < N; ++i) {
        const std::int32_t magnitude = magnitude_of(values[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return __builtin_bit_cast(float, largest);
}

/// The first of the values of largest magnitude, with its sign; 0 if all are zeros.
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline float first_largest(const float* values) {
    std::int32_t positive = 0; // the largest magnitude of each sign
    std::int32_t negative = 0;
    for (int i = 0; i < N; ++i) {
        const auto bits = __builtin_bit_cast(std::int32_t, values[i]);
        const std::int32_t opposite = bits ^ INT32_MIN;
        positive = bits > positive ? bits : positive;
        negative = opposite > negative ? opposite : negative;
    }
    if (positive == negative && positive != 0) {
        while (magnitude_of(*values) != positive) ++values;
        return *values;
    }
    return __builtin_bit_cast(float, positive < negative ? negative ^ INT32_MIN : positive);
}

/// The bits of a float as an integer of the same order, where -0 is smaller than 0; and the bits of such an integer.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::int32_t ordered(std::int32_t bits) {
    return bits ^ (bits >> 31 & INT32_MAX);
}

struct Extremes {
    float min;
    float max;
};
/// The smallest and the largest value, of equal ones the first. If there is a NaN, at least one of the two is a NaN.
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline Extremes extremes_of(const float* values) {
    std::int32_t min = INT32_MAX;
    std::int32_t max = INT32_MIN;
    for (int i = 0; i < N; ++i) {
        const std::int32_t key = ordered(__builtin_bit_cast(std::int32_t, values[i]));
        min = key < min ? key : min;
        max = key > max ? key : max;
    }
    Extremes found{__builtin_bit_cast(float, ordered(min)), __builtin_bit_cast(float, ordered(max))};
    if (found.min == 0) {
        const float* zero = values;
        while (*zero != 0) ++zero;
        found.min = *zero;
    }
    return found;
}

/// 1 / x, and 0 where that is no finite number.
[[gnu::always_inline]] CELLAR_FUNCTION inline float inverse_of(float x) {
    const float inverse = 1 / x;
    return magnitude_of(inverse) < 0x7f800000 ? inverse : 0;
}

inline constexpr float largest_float = 0x1.fffffep127F;
inline constexpr float quiet_nan = __builtin_nanf("");
inline constexpr float almost_half = 0x1.fffffep-2F; ///< a half would round 0.49999997 up

// Compilers do not vectorise choices between floats, which may trap, nor nested ones. So the following choose between
// integers, and with masks.

/// `then` if a < b, else `otherwise`, for a and b whose difference does not overflow.
[[gnu::always_inline]] CELLAR_FUNCTION constexpr std::int32_t if_less(std::int32_t a, std::int32_t b, std::int32_t then,
                                                                      std::int32_t otherwise) {
    const std::int32_t is_less = (a - b) >> 31;
    return (then & is_less) | (otherwise & ~is_less);
}

/// x, or a number of magnitude `limit` with its sign if x is larger or a NaN.
[[gnu::always_inline]] CELLAR_FUNCTION inline float limited(float x, float limit) {
    const std::int32_t magnitude = magnitude_of(x);
    const auto largest = __builtin_bit_cast(std::int32_t, limit);
    const std::int32_t sign = __builtin_bit_cast(std::int32_t, x) & INT32_MIN;
    return __builtin_bit_cast(float, (magnitude < largest ? magnitude : largest) | sign);
}
/// x in [0, limit]; a NaN becomes one of these.
[[gnu::always_inline]] CELLAR_FUNCTION inline float limited_above_zero(float x, float limit) {
    const auto bits = __builtin_bit_cast(std::int32_t, x); // negative for a negative x
    const auto largest = __builtin_bit_cast(std::int32_t, limit);
    const std::int32_t positive = bits > 0 ? bits : 0;
    return __builtin_bit_cast(float, positive < largest ? positive : largest);
}

/// The nearest integer; of two, the one of larger magnitude. For |x| < 2^23.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::int32_t nearest(float x) {
    return static_cast<std::int32_t>(x + __builtin_copysignf(almost_half, x));
}

/// The nearest integer; of two, the even one. For 0 <= x < 2^22.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::int32_t nearest_even(float x) {
    constexpr float large = 0x1p23F; // whose neighbours are integers
    return __builtin_bit_cast(std::int32_t, x + large) - __builtin_bit_cast(std::int32_t, large);
}

/// The nearest multiples of a scale, in [-127, 127]; and back.
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline void nearest_steps(const float* __restrict values, float inverse,
                                                                 std::int8_t* __restrict steps) {
    for (int i = 0; i < N; ++i) steps[i] = static_cast<std::int8_t>(nearest(limited(values[i] * inverse, 127)));
}
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline void multiples(const std::int8_t* __restrict steps, float scale,
                                                             float* __restrict values) {
    for (int i = 0; i < N; ++i) values[i] = static_cast<float>(steps[i]) * scale;
}
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline void multiples(const std::int8_t* __restrict steps, float scale,
                                                             float offset, float* __restrict values) {
    for (int i = 0; i < N; ++i) values[i] = static_cast<float>(steps[i]) * scale + offset;
}

} // namespace cellar::detail
