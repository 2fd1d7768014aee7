// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::detail {

/// Numbers of a sign, some bits of exponent and some of fraction, with subnormal ones, as IEEE 754 has them; without
/// infinities and NaNs. Nothing here branches, so that loops compile to vector code.
template <int ExponentBits, int FractionBits>
struct Minifloat {
    static constexpr int bias = (1 << (ExponentBits - 1)) - 1;

    /// The power of two above a number, both as magnitudes: the bits of a float, and those of the number.
    CELLAR_FUNCTION static constexpr std::int32_t power_above(int number) {
        return ((number >> FractionBits) + 128 - bias) << 23;
    }

    // `Int` and `Float` may be vectors.

    /// The nearest number to a magnitude that is given as the bits of a float; of two, the even one.
    template <class Float = float, class Int>
    [[gnu::always_inline]] CELLAR_FUNCTION static Int rounded(Int magnitude) {
        const Int exponent = magnitude & 0x7f800000;
        const Int unit = exponent > smallest_normal ? exponent : Int{} + smallest_normal;
        // Adding a number with room for just `FractionBits` below the unit rounds to them; the sum's fraction counts
        // them.
        const Int large = unit + ((23 - FractionBits) << 23);
        const Float sum = __builtin_bit_cast(Float, magnitude) + __builtin_bit_cast(Float, large);
        return ((unit - smallest_normal) >> (23 - FractionBits)) + (__builtin_bit_cast(Int, sum) - large);
    }

    template <class Float = float, class Int>
    [[gnu::always_inline]] CELLAR_FUNCTION static constexpr Float value_of(Int magnitude) {
        // A subnormal lacks the leading one that a float's exponent implies. It is added here and subtracted again.
        const Int bits = magnitude << (23 - FractionBits);
        const Int subnormal = (bits - (1 << 23)) >> 31;
        const Int larger = bits + ((127 - bias) << 23) + (subnormal & (1 << 23));
        const Int taken_off = subnormal & smallest_normal;
        return __builtin_bit_cast(Float, larger) - __builtin_bit_cast(Float, taken_off);
    }

private:
    static constexpr std::int32_t smallest_normal = (128 - bias) << 23; // as a float
};

} // namespace cellar::detail
