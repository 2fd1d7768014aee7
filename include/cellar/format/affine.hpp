// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/half.hpp>
#include <cellar/format/detail/codes.hpp>
#include <cellar/format/detail/group_encoders.hpp>
#include <cellar/format/detail/name.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/format/detail/run.hpp>
#include <cellar/simd/levels.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

namespace cellar {

namespace detail {

struct ScaleAndBias {
    half scale;
    half bias;
};
/// Before it is rounded to halves.
template <class Float>
struct Grid {
    Float scale;
    Float bias;
};

template <int Bits>
struct AffineLevels {};
template <>
struct AffineLevels<4> {
    static constexpr auto levels = Levels::of([](int code) { return code; }, 1);
    static constexpr auto nibbles = &PackedNumbers<4>::bytes;
};

template <int Bits, int Group>
struct AffineGroup {
    using unit = PackedNumbers<Bits>;
    using scale = ScaleAndBias;
    static constexpr int bits = Bits;
    static constexpr int values_per_scale = Group;
    static constexpr auto last = static_cast<float>((1 << Bits) - 1);

    /// MLX's way: the extreme of larger magnitude, `edge`, is exact, and zero is a multiple of the scale away from it.
    /// `Int` and `Float` may be vectors.
    template <class Int, class Float>
    [[gnu::always_inline]] CELLAR_FUNCTION static Grid<Float> grid_of(Float min, Float max) {
        const Float step = (max - min) / last;
        const auto from_min = (__builtin_bit_cast(Int, min) & INT32_MAX) > (__builtin_bit_cast(Int, max) & INT32_MAX);
        const Float magnitude = step < 1e-7F ? Float{} + 1e-7F : step;
        const Float signed_step = from_min ? magnitude : -magnitude;
        const Float edge = from_min ? min : max;
        const Float steps = whole(edge / signed_step);
        return {steps != 0 ? edge / steps : signed_step, steps != 0 ? edge : Float{}};
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static ScaleAndBias encode(const float* values, unit* units) {
        const auto [min, max] = extremes_of<Group>(values);
        const auto [scale, bias] = grid_of<std::int32_t>(min, max);
        std::uint8_t numbers[std::size_t{Group}];
        for (int i = 0; i < Group; ++i)
            numbers[i] = static_cast<std::uint8_t>(nearest_even(limited_above_zero((values[i] - bias) / scale, last)));
        for (int i = 0; i < Group / 8; ++i) {
            const std::uint64_t packed = little_endian(joined<Bits>(load_eight(numbers + 8 * i)));
            __builtin_memcpy(units[i / 4].bytes + i % 4 * Bits, &packed, Bits);
        }
        return {static_cast<half>(scale), static_cast<half>(bias)};
    }
    /// The numbers of a unit, or with `Signed` those of 8 bits less 128.
    template <bool Signed, class Byte>
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack(const unit& from, Byte* numbers) {
        for (int i = 0; i < 4; ++i) {
            const int begin = i * Bits;
            const int at = begin < 4 * Bits - 8 ? begin : 4 * Bits - 8; // of eight bytes within the unit
            const std::uint64_t eight = separated<Bits>(load_eight(from.bytes + at) >> 8 * (begin - at));
            const std::uint64_t zero = Signed && Bits == 8 ? low_bits(1, 8) << 7 : 0;
            store_eight(eight ^ zero, reinterpret_cast<std::uint8_t*>(numbers + 8 * i));
        }
    }

private:
    /// The nearest whole number to x <= 0; of two, the even one.
    template <class Float>
    [[gnu::always_inline]] CELLAR_FUNCTION static Float whole(Float x) {
        constexpr float large = 0x1p23F;
        return x > -large ? (x - large) + large : x;
    }
};

} // namespace detail

/// `Bits` bits a value: numbers times a scale, plus a bias, both in half precision for each `Group` values of a head.
/// With the scales, 4 bits in groups of 64 are 4.5 bits a value. Units have the bytes of MLX's packed arrays, and the
/// second plane has MLX's scales and biases side by side; encoded as by `mlx.core.quantize` on a CPU.
///
/// With r, the distance between the largest and the smallest value of a group, and n = 2^Bits - 1, errors are at most
/// r / n. To that comes what the rounding of scale and bias to half adds: up to 2^-10 of the largest magnitude. Biases
/// overflow from 65520 on. A group with an infinity or a NaN decodes to NaNs. What was decoded may be encoded with
/// another scale, of the same bound.
template <int Bits, int Group = 64>
    requires((Bits == 2 || Bits == 3 || Bits == 4 || Bits == 6 || Bits == 8)
             && (Group == 32 || Group == 64 || Group == 128))
struct Affine : detail::AffineLevels<Bits> {
    using unit = detail::PackedNumbers<Bits>;
    using scale = detail::ScaleAndBias;
    using code = std::int8_t;
    static constexpr int values_per_unit = 32;
    static constexpr int values_per_scale = Group;
    using factor = std::conditional_t<Bits == 8, float, half>;
    static constexpr int values_per_factor = Group;
    static constexpr bool has_offsets = true;
    using encodes_several_heads = Affine; ///< `encode` takes the values of several heads, too

private:
    static constexpr detail::FormatName text = detail::FormatName{}.add("affine").add(Bits).add("_").add(Group);
    static constexpr int units_per_group = Group / 32;
    using Numbers = detail::AffineGroup<Bits, Group>;

public:
    static constexpr std::string_view name = text.view();

    static void encode(std::span<const float> values, std::span<unit> units, std::span<scale> scales) {
        detail::encode_groups<Numbers, Encode>(values.data(), units.data(), scales.data(), scales.size());
    }
    static void decode(std::span<const unit> units, std::span<const scale> scales, std::span<float> values) {
        detail::run<Decode>(units.data(), scales.data(), values.data(), std::ssize(scales));
    }

    CELLAR_FUNCTION static void encode_group(const float* values, int /*n*/, unit* units, scale& to) {
        to = Numbers::encode(values, units);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void decode_unit(const unit& from, const scale& own, float* values) {
        std::uint8_t numbers[32];
        Numbers::template unpack<false>(from, numbers);
        const auto by = static_cast<float>(own.scale);
        const auto bias = static_cast<float>(own.bias);
        for (int k = 0; k < 32; ++k) values[k] = static_cast<float>(numbers[k]) * by + bias;
    }

    /// For attention: value i is codes[i] * factors[i / Group] + offsets[i / Group]. Codes of 8 bits are the numbers
    /// less 128.
    [[gnu::always_inline]] static void unpack(std::span<const unit> units, std::span<const scale> scales,
                                              std::span<code> codes, std::span<factor> factors,
                                              std::span<factor> offsets) {
        for (std::size_t group = 0; group < scales.size(); ++group)
            for (std::size_t i = group * units_per_group; i < (group + 1) * units_per_group; ++i)
                Numbers::template unpack<true>(units.data()[i], codes.data() + i * 32);
        unpack_factors(scales, factors.data(), offsets.data());
    }
    /// The same, without the codes.
    [[gnu::always_inline]] static void unpack_factors(std::span<const scale> scales, factor* factors, factor* offsets) {
        for (std::size_t group = 0; group < scales.size(); ++group) {
            const scale& own = scales.data()[group];
            factors[group] = static_cast<factor>(own.scale);
            offsets[group] = static_cast<factor>(own.bias);
            if constexpr (Bits == 8) offsets[group] += 128 * factors[group];
        }
    }

private:
    struct Encode {
        [[gnu::always_inline]] static void run(const float* values, unit* units, scale* scales, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i)
                scales[i] = Numbers::encode(values + i * Group, units + i * units_per_group);
        }
    };
    struct Decode {
        [[gnu::always_inline]] static void run(const unit* units, const scale* scales, float* values,
                                               std::ptrdiff_t n) {
            for (std::ptrdiff_t i = 0; i < n * units_per_group; ++i)
                decode_unit(units[i], scales[i / units_per_group], values + i * 32);
        }
    };
};

static_assert(sizeof(Affine<3>::unit) == 12 && alignof(Affine<8>::unit) == 4);

} // namespace cellar
