// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/half.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/format/detail/minifloat.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/format/detail/run.hpp>
#include <cellar/simd/byte_numbers.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

namespace cellar {

/// What becomes of numbers that a format is too small for.
enum class Overflow {
    saturates, ///< they, and infinities, become the largest number
    is_special ///< they, and infinities, become infinities, or NaNs in a format without infinities
};

namespace detail {

/// Numbers of 8 bits. `Largest`: the magnitude of the largest finite one, as bits; `Infinity`: that of infinity, or 0
/// without one.
template <int ExponentBits, int FractionBits, int Largest, int Infinity, Overflow Above>
struct Fp8 {
    using unit = std::uint8_t;
    using code = half;
    static constexpr int values_per_unit = 1;
    static constexpr int values_per_factor = whole_head;
    static constexpr bool has_offsets = false;
    static void encode(std::span<const float> values, std::span<unit> units) {
        detail::run<Encode>(values.data(), units.data(), std::ssize(values));
    }
    static void decode(std::span<const unit> units, std::span<float> values) {
        detail::run<Decode>(units.data(), values.data(), std::ssize(values));
    }

    CELLAR_FUNCTION static void encode_unit(const float* value, unit& to) { encode_some<1>(value, &to); }
    CELLAR_FUNCTION static constexpr void decode_unit(const unit& from, float* value) { decode_some<1>(&from, value); }

    /// For attention: value i is codes[i] * factors[0]. The bits of a number are those of a half with another bias.
    [[gnu::always_inline]] static void unpack(std::span<const unit> units, std::span<code> codes,
                                              std::span<float> factors) {
        factors.data()[0] = static_cast<float>(1 << (15 - Number::bias));
        const unit* const from = units.data();
        code* const to = codes.data();
        for_each_chunk(std::ssize(units),
                       [&]<int N>(std::ptrdiff_t i) CELLAR_ALWAYS_INLINE { unpack_some<N>(from + i, to + i); });
    }

private:
    using Number = Minifloat<ExponentBits, FractionBits>;
    static constexpr int last = Infinity != 0 ? Infinity : Largest; ///< the largest magnitude that is no NaN
    static constexpr int nan = 0x7f;
    static constexpr std::int32_t infinity_of_float = 0x7f800000;
    static constexpr std::int32_t nan_of_float = 0x7fc00000;
    static constexpr int too_large = Above == Overflow::saturates ? Largest : Infinity != 0 ? Infinity : nan;

    template <int N>
    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_some(const float* __restrict values,
                                                                   unit* __restrict to) {
        constexpr std::int32_t above = Number::power_above(Largest);
        for (int k = 0; k < N; ++k) {
            const auto bits = __builtin_bit_cast(std::int32_t, values[k]);
            const std::int32_t magnitude = bits & INT32_MAX;
            const std::int32_t number = Number::rounded(magnitude < above ? magnitude : above);
            const std::int32_t finite = if_less(Largest, number, too_large, number);
            to[k] = static_cast<unit>((bits >> 24 & 0x80) | if_less(infinity_of_float, magnitude, nan, finite));
        }
    }
    template <int N>
    [[gnu::always_inline]] CELLAR_FUNCTION static constexpr void decode_some(const unit* __restrict from,
                                                                             float* __restrict values) {
        for (int k = 0; k < N; ++k) {
            const std::int32_t magnitude = from[k] & 0x7f;
            const std::int32_t special = if_less(last, magnitude, nan_of_float, infinity_of_float);
            const float value = Number::value_of(magnitude);
            const auto number = __builtin_bit_cast(std::int32_t, value);
            values[k] =
                __builtin_bit_cast(float, (from[k] & 0x80) << 24 | if_less(Largest, magnitude, special, number));
        }
    }
    template <int N>
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_some(const unit* __restrict from, code* __restrict to) {
        for (int k = 0; k < N; ++k) {
            const int magnitude = from[k] & 0x7f;
            // With infinities, the special ones are those of half. Else only 0x7f is: a NaN, once its exponent is full.
            const int full = Infinity != 0 ? 0 : ((magnitude + 1) & 0x80) << 7;
            to[k].bits = static_cast<std::uint16_t>((from[k] & 0x80) << 8 | magnitude << (10 - FractionBits) | full);
        }
    }

    struct Encode {
        [[gnu::always_inline]] static void run(const float* values, unit* units, std::ptrdiff_t n) {
            for_each_chunk(n, [&]<int N>(std::ptrdiff_t i)
                                  CELLAR_ALWAYS_INLINE { encode_some<N>(values + i, units + i); });
        }
    };
    struct Decode {
        [[gnu::always_inline]] static void run(const unit* units, float* values, std::ptrdiff_t n) {
            for_each_chunk(n, [&]<int N>(std::ptrdiff_t i)
                                  CELLAR_ALWAYS_INLINE { decode_some<N>(units + i, values + i); });
        }
    };

public:
    /// What kernels look up.
    static constexpr ByteNumbers numbers = ByteNumbers::of([](int magnitude) {
        float value = 0;
        Fp8::decode_unit(static_cast<unit>(magnitude), &value);
        return value;
    });
};

} // namespace detail

/// E4M3 of the OCP 8-bit Floating Point Specification 1.0: 8 bits a value, 3 of fraction. Magnitudes up to 448; from
/// 2^-6 on, errors are at most 2^-4 of the value, below that 2^-10. There is no scale: values that are larger, as
/// outliers of keys may be, need another format, or a rotation. Conversion rounds to nearest, ties to even. A NaN stays
/// one. What was decoded is encoded to the same bits again.
template <Overflow Above = Overflow::saturates>
struct Fp8E4m3 : detail::Fp8<4, 3, 0x7e, 0, Above> {
    static constexpr std::string_view name = "F8_E4M3";
};
using fp8_e4m3 = Fp8E4m3<>;

/// E5M2 of the same specification: 2 bits of fraction, magnitudes up to 57344. From 2^-14 on, errors are at most 2^-3
/// of the value, below that 2^-17. Without saturation, larger values become infinities.
template <Overflow Above = Overflow::saturates>
struct Fp8E5m2 : detail::Fp8<5, 2, 0x7b, 0x7c, Above> {
    static constexpr std::string_view name = "F8_E5M2";
};
using fp8_e5m2 = Fp8E5m2<>;

} // namespace cellar
