// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/format/detail/minifloat.hpp>
#include <cellar/format/detail/nearest_level.hpp>
#include <cellar/format/detail/numbers.hpp>

#include <cstdint>

/// Numbers of 4 bits, and the scales of their blocks.
namespace cellar::detail {

/// -1 or 0.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::int32_t is_beyond(std::int32_t magnitude, float middle) {
    return (__builtin_bit_cast(std::int32_t, middle) - magnitude) >> 31;
}
/// The nearest E2M1 to value / scale; of two, the one nearer to zero. Without the negative zero.
[[gnu::always_inline]] CELLAR_FUNCTION inline std::uint8_t nearest_e2m1(float value, float scale) {
    const std::int32_t x = magnitude_of(value);
    const std::int32_t is_not_zero = is_beyond(x, 0.25F * scale);
    const std::int32_t code = is_not_zero + is_beyond(x, 0.75F * scale) + is_beyond(x, 1.25F * scale)
                              + is_beyond(x, 1.75F * scale) + is_beyond(x, 2.5F * scale) + is_beyond(x, 3.5F * scale)
                              + is_beyond(x, 5 * scale);
    const std::int32_t sign = __builtin_bit_cast(std::int32_t, value) >> 28 & 8;
    return static_cast<std::uint8_t>((sign & is_not_zero) - code);
}
/// Twice the number.
[[gnu::always_inline]] CELLAR_FUNCTION constexpr std::int8_t twice_e2m1(int code) {
    const int n = code & 7;
    const int twice = n + if_less(4, n, 1, 0) + if_less(5, n, 1, 0) + if_less(6, n, 3, 0);
    const int sign = -(code >> 3); // -1 or 0
    return static_cast<std::int8_t>((twice ^ sign) - sign);
}

/// For vectors: ranks of numbers from -6 to 6, which are nearest to an integer times a 32nd; what these codes are, and
/// twice the numbers.
inline constexpr std::int16_t e2m1_middles[7] = {8, 24, 40, 56, 80, 112, 160}; // as 32nds
inline constexpr NearestLevel e2m1_nearest =
    NearestLevel::of([](int i) { return i < 7 ? 1 - e2m1_middles[6 - i] : int{e2m1_middles[i - 7]}; }, 14);
constexpr int e2m1_of_rank(int rank) {
    return rank < 7 ? 15 - rank : rank < 15 ? rank - 7 : 0;
}
inline constexpr ByteTable e2m1_codes = ByteTable::of(e2m1_of_rank);
inline constexpr ByteTable e2m1_twice = ByteTable::of([](int rank) { return twice_e2m1(e2m1_of_rank(rank)); });

/// Powers of two, E8M0: 2^(bits - 127), and a NaN.
struct E8m0 {
    static constexpr std::uint8_t nan = 255;

    /// A quarter of the power of two that is not above a magnitude, which is given as the bits of a float; NaN if that
    /// is not finite.
    [[gnu::always_inline]] CELLAR_FUNCTION static std::uint8_t quarter_of(std::int32_t magnitude) {
        const std::int32_t exponent = magnitude >> 23;
        return static_cast<std::uint8_t>(exponent == nan ? nan : exponent < 2 ? 0 : exponent - 2);
    }
    /// Half of its value.
    [[gnu::always_inline]] CELLAR_FUNCTION static float half_of(std::uint8_t exponent) {
        const std::int32_t bits = exponent < 2 ? 1 << (21 + exponent) : (exponent - 1) << 23;
        return exponent == nan ? quiet_nan : __builtin_bit_cast(float, bits);
    }
};

/// E4M3 without sign. `Int` and `Float` may be vectors.
struct UnsignedE4m3 {
    template <class Int, class Float>
    [[gnu::always_inline]] CELLAR_FUNCTION static Int nearest(Float x) {
        const Int most = Int{} + largest;
        const Int above = Int{} + Number::power_above(largest);
        const Int magnitude = __builtin_bit_cast(Int, x) & INT32_MAX;
        const Int number = Number::template rounded<Float>(magnitude < above ? magnitude : above);
        const Int finite = number < most ? number : most;
        return magnitude < 0x7f800000 ? finite : Int{} + nan;
    }
    template <class Float, class Int>
    [[gnu::always_inline]] CELLAR_FUNCTION static Float value_of(Int number) {
        const Float finite = Number::template value_of<Float>(number & 0x7f);
        return number == nan ? Float{} + quiet_nan : finite;
    }

private:
    using Number = Minifloat<4, 3>;
    static constexpr std::int32_t largest = 0x7e;
    static constexpr std::int32_t nan = 0x7f;
};

/// Half of such a number, which twice an E2M1 is multiplied by. For vectors: the float whose bits are the lower 7 bits,
/// shifted, plus `exponent`; below `first_normal`, the bits times `least`. So there are no denormal floats, which a
/// program may have set to be taken for zeros.
struct HalfOfE4m3 {
    static constexpr int shift = 20;
    static constexpr std::int32_t exponent = 119 << 23;
    static constexpr std::int32_t first_normal = 8;
    static constexpr float least = 0x1p-10F;
    static constexpr std::int32_t nan = 0x7f;

    std::uint8_t bits;

    [[gnu::always_inline]] CELLAR_FUNCTION explicit operator float() const {
        return UnsignedE4m3::value_of<float>(std::int32_t{bits}) / 2;
    }
};

} // namespace cellar::detail
