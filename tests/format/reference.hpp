// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/half.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// Formats in plain loops, one value after the other, as their specifications describe them: bytes and values.

namespace cellar_test::reference {

using Bytes = std::vector<std::uint8_t>;

// Halves have the machine's order of bytes.
inline void put_half(Bytes& to, float x) {
    const auto bits = std::bit_cast<std::array<std::uint8_t, 2>>(static_cast<cellar::half>(x).bits);
    to.insert(to.end(), bits.begin(), bits.end());
}
inline float get_half(std::span<const std::uint8_t> from) {
    const std::array<std::uint8_t, 2> bits{from[0], from[1]};
    return static_cast<float>(cellar::half::from_bits(std::bit_cast<std::uint16_t>(bits)));
}

inline float largest(std::span<const float> values) {
    float found = 0;
    for (const float x : values) found = std::max(found, std::abs(x));
    return found;
}
/// With its sign; of several, the first.
inline float signed_largest(std::span<const float> values) {
    float found = 0;
    for (const float x : values)
        if (std::abs(x) > std::abs(found)) found = x;
    return found;
}
inline float inverse(float x) {
    return x == 0 || std::isinf(1 / x) ? 0 : 1 / x;
}

/// Byte i has code i in its lower half, and code i + n / 2 in the upper one.
inline void put_halves(Bytes& to, std::span<const int> codes) {
    for (std::size_t i = 0; i < codes.size() / 2; ++i)
        to.push_back(static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + codes.size() / 2] & 15) << 4));
}
inline std::vector<int> get_halves(std::span<const std::uint8_t> from) {
    std::vector<int> codes;
    for (const std::uint8_t byte : from) codes.push_back(byte & 15);
    for (const std::uint8_t byte : from) codes.push_back(byte >> 4);
    return codes;
}
/// Bit i of 32 is the fifth bit of code i.
inline void put_fifths(Bytes& to, std::span<const int> codes) {
    for (std::size_t byte = 0; byte < 4; ++byte) {
        int bits = 0;
        for (std::size_t i = 0; i < 8; ++i) bits |= (codes[8 * byte + i] >> 4 & 1) << i;
        to.push_back(static_cast<std::uint8_t>(bits));
    }
}

/// q8_0.
inline Bytes encode_q8_0(std::span<const float> block) {
    const float scale = largest(block) / 127;
    Bytes bytes;
    put_half(bytes, scale);
    for (const float x : block)
        bytes.push_back(static_cast<std::uint8_t>(static_cast<int>(std::round(x * inverse(scale)))));
    return bytes;
}
inline std::vector<float> decode_q8_0(std::span<const std::uint8_t> bytes) {
    std::vector<float> values;
    for (const std::uint8_t byte : bytes.subspan(2))
        values.push_back(static_cast<float>(static_cast<std::int8_t>(byte)) * get_half(bytes));
    return values;
}

/// q4_0 and q5_0: codes of so many bits.
inline Bytes encode_signed(std::span<const float> block, int bits) {
    const int zero = 1 << (bits - 1);
    const float scale = signed_largest(block) / static_cast<float>(-zero);
    std::vector<int> codes;
    for (const float x : block)
        codes.push_back(std::min(2 * zero - 1, static_cast<int>(x * inverse(scale) + static_cast<float>(zero) + 0.5F)));
    Bytes bytes;
    put_half(bytes, scale);
    if (bits == 5) put_fifths(bytes, codes);
    put_halves(bytes, codes);
    return bytes;
}

/// q4_1 and q5_1.
inline Bytes encode_minimum(std::span<const float> block, int bits) {
    float min = block[0];
    float max = block[0];
    for (const float x : block) {
        if (x < min) min = x;
        if (x > max) max = x;
    }
    const int last = (1 << bits) - 1;
    const float scale = (max - min) / static_cast<float>(last);
    std::vector<int> codes;
    for (const float x : block) codes.push_back(std::min(last, static_cast<int>((x - min) * inverse(scale) + 0.5F)));
    Bytes bytes;
    put_half(bytes, scale);
    put_half(bytes, min);
    if (bits == 5) put_fifths(bytes, codes);
    put_halves(bytes, codes);
    return bytes;
}

inline std::vector<float> decode_steps(std::span<const std::uint8_t> bytes, int bits, bool has_minimum) {
    const float scale = get_half(bytes);
    const float minimum = has_minimum ? get_half(bytes.subspan(2)) : 0;
    bytes = bytes.subspan(has_minimum ? 4 : 2);
    std::vector<int> codes = get_halves(bytes.last(16));
    for (std::size_t i = 0; bits == 5 && i < 32; ++i) codes[i] |= (bytes[i / 8] >> i % 8 & 1) << 4;
    std::vector<float> values;
    for (const int code : codes)
        values.push_back(has_minimum ? static_cast<float>(code) * scale + minimum
                                     : static_cast<float>(code - (1 << (bits - 1))) * scale);
    return values;
}

/// iq4_nl.
inline constexpr std::array<int, 16> levels{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline Bytes encode_iq4_nl(std::span<const float> block) {
    const float by = inverse(signed_largest(block) / -127);
    float of_values = 0;
    float of_levels = 0;
    std::vector<int> codes;
    for (const float x : block) {
        int best = 0;
        for (int code = 1; code < 16; ++code) {
            const float middle =
                static_cast<float>(levels[static_cast<std::size_t>(code)] + levels[static_cast<std::size_t>(code - 1)])
                / 2;
            if (x * by >= middle) best = code;
        }
        const auto level = static_cast<float>(levels[static_cast<std::size_t>(best)]);
        const float weight = x * x;
        of_values += weight * level * x;
        of_levels += weight * level * level;
        codes.push_back(best);
    }
    Bytes bytes;
    put_half(bytes, largest(block) < 1e-15F || of_levels == 0 ? 0 : of_values / of_levels);
    put_halves(bytes, codes);
    return bytes;
}
inline std::vector<float> decode_iq4_nl(std::span<const std::uint8_t> bytes) {
    std::vector<float> values;
    for (const int code : get_halves(bytes.subspan(2)))
        values.push_back(static_cast<float>(levels[static_cast<std::size_t>(code)]) * get_half(bytes));
    return values;
}

/// A number of a sign, `exponent_bits` and `fraction_bits`, if all patterns were numbers.
inline double small_float(int bits, int exponent_bits, int fraction_bits) {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double one = 1 << fraction_bits;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction / one, 1 - bias) : std::ldexp(1 + fraction / one, exponent - bias);
    return bits >> (exponent_bits + fraction_bits) != 0 ? -magnitude : magnitude;
}

/// E2M1, by comparing with all numbers: of two that are as near, the one nearer to zero.
inline int nearest_e2m1(float value, double scale) {
    int best = 0;
    for (int code = 1; code < 16; ++code)
        if (std::abs(small_float(code, 2, 1) * scale - value) < std::abs(small_float(best, 2, 1) * scale - value))
            best = code;
    return best;
}
inline double squared_error(std::span<const float> values, double scale) {
    double sum = 0;
    for (const float x : values) {
        const double error = small_float(nearest_e2m1(x, scale), 2, 1) * scale - x;
        sum += error * error;
    }
    return sum;
}

/// mxfp4.
inline Bytes encode_mxfp4(std::span<const float> block) {
    int exponent = 0; // of the largest magnitude
    std::frexp(largest(block), &exponent);
    const int scale = largest(block) == 0 ? 0 : std::max(0, exponent - 1 - 2 + 127);
    std::vector<int> codes;
    for (const float x : block) codes.push_back(nearest_e2m1(x, std::ldexp(1.0, scale - 127)));
    Bytes bytes{static_cast<std::uint8_t>(scale)};
    put_halves(bytes, codes);
    return bytes;
}
inline std::vector<float> decode_mxfp4(std::span<const std::uint8_t> bytes) {
    std::vector<float> values;
    for (const int code : get_halves(bytes.subspan(1)))
        values.push_back(static_cast<float>(std::ldexp(small_float(code, 2, 1), bytes[0] - 127)));
    return values;
}

/// The nearest E4M3 of a magnitude, up to 448; of two, the even one.
inline int nearest_e4m3(float magnitude) {
    int best = 0;
    for (int code = 1; code <= 0x7e; ++code) {
        const double error = std::abs(small_float(code, 4, 3) - magnitude);
        const double least = std::abs(small_float(best, 4, 3) - magnitude);
        if (error < least || (error == least && code % 2 == 0)) best = code;
    }
    return best;
}

/// nvfp4: four groups of 16.
inline Bytes encode_nvfp4(std::span<const float> unit, bool four_over_six) {
    Bytes scales;
    Bytes numbers;
    for (std::size_t group = 0; group < 4; ++group) {
        const auto own = unit.subspan(16 * group, 16);
        int scale = nearest_e4m3(largest(own) / 6);
        const int larger = nearest_e4m3(largest(own) / 4);
        if (four_over_six
            && squared_error(own, small_float(larger, 4, 3)) < squared_error(own, small_float(scale, 4, 3)))
            scale = larger;
        std::vector<int> codes;
        for (const float x : own) codes.push_back(nearest_e2m1(x, small_float(scale, 4, 3)));
        scales.push_back(static_cast<std::uint8_t>(scale));
        put_halves(numbers, codes);
    }
    scales.insert(scales.end(), numbers.begin(), numbers.end());
    return scales;
}
inline std::vector<float> decode_nvfp4(std::span<const std::uint8_t> bytes) {
    std::vector<float> values;
    for (std::size_t group = 0; group < 4; ++group)
        for (const int code : get_halves(bytes.subspan(4 + 8 * group, 8)))
            values.push_back(static_cast<float>(small_float(code, 2, 1) * small_float(bytes[group], 4, 3)));
    return values;
}

/// Numbers, scale and bias of a group, as MLX has them.
struct AffineGroup {
    std::vector<int> numbers;
    float scale;
    float bias;

    AffineGroup(std::span<const float> values, int bits) {
        const float last = static_cast<float>((1 << bits) - 1);
        const auto [min, max] = std::minmax_element(values.begin(), values.end());
        scale = std::max((*max - *min) / last, 1e-7F);
        if (std::abs(*min) <= std::abs(*max)) scale = -scale;
        const float edge = std::abs(*min) > std::abs(*max) ? *min : *max;
        const float steps = std::rint(edge / scale);
        bias = 0;
        if (steps != 0) {
            scale = edge / steps;
            bias = edge;
        }
        for (const float x : values)
            numbers.push_back(static_cast<int>(std::clamp(std::rint((x - bias) / scale), 0.0F, last)));
    }

    /// One behind the other, from the lowest bit of the first byte on.
    Bytes bytes(int bits) const {
        Bytes packed(numbers.size() * static_cast<std::size_t>(bits) / 8);
        for (std::size_t i = 0; i < numbers.size() * static_cast<std::size_t>(bits); ++i) {
            const auto width = static_cast<std::size_t>(bits);
            packed[i / 8] = static_cast<std::uint8_t>(packed[i / 8] | (numbers[i / width] >> i % width & 1) << i % 8);
        }
        return packed;
    }
};

} // namespace cellar_test::reference
