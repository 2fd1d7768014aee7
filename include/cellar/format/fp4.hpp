// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/format/detail/blocks.hpp>
#include <cellar/format/detail/codes.hpp>
#include <cellar/format/detail/fp4_numbers.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/simd/levels.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Blocks of numbers of 4 bits, E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and their negatives. Units have the bytes of ggml's
/// blocks. The errors that follow are those of values which the scale can reach.
namespace cellar {

namespace detail {

template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline void encode_e2m1(const float* values, float scale, std::uint8_t* to) {
    std::uint8_t codes[std::size_t{N}];
    for (int i = 0; i < N; ++i) codes[i] = nearest_e2m1(values[i], scale);
    pack_halves<N>(codes, to);
}
template <int N>
[[gnu::always_inline]] CELLAR_FUNCTION inline void unpack_e2m1(const std::uint8_t* __restrict from,
                                                               std::int8_t* __restrict twice) {
    CELLAR_VECTOR_LOOP
    for (int i = 0; i < N / 2; ++i) twice[i] = twice_e2m1(from[i] & 0xf);
    CELLAR_VECTOR_LOOP
    for (int i = 0; i < N / 2; ++i) twice[i + N / 2] = twice_e2m1(from[i] >> 4);
}

struct Mxfp4Block {
    std::uint8_t scale;
    std::uint8_t numbers[16]; // byte i: numbers i and 16 + i
};
struct Nvfp4Block {
    std::uint8_t scales[4];
    std::uint8_t numbers[32]; // byte i of a group's eight: numbers i and 8 + i
};

} // namespace detail

/// 4.25 bits a value: E2M1 in blocks of 32, whose scale is a power of two (E8M0), as the OCP Microscaling Formats
/// Specification 1.0 has it. With a, the largest magnitude in the block, errors are at most a / 4: as much where a is
/// just below 8 times the scale, and a / 8 where it is 4 times. ggml's bits, unless a is the last float or two below a
/// power of two, which ggml takes for that power.
///
/// Magnitudes below 2^-127 are zeros. A block with an infinity or a NaN decodes to NaNs. What was decoded is encoded to
/// the same bits again.
struct mxfp4 : detail::InBlocks<mxfp4, detail::Mxfp4Block, 32, float> {
    using encoding = detail::ScaledByPowers;
    static constexpr std::string_view name = "mxfp4";
    static constexpr auto levels = detail::Levels::of(detail::twice_e2m1, 16);
    static constexpr auto nibbles = &unit::numbers;

    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_unit(const float* values, unit& block) {
        block.scale = detail::E8m0::quarter_of(detail::magnitude_of(detail::largest_magnitude<32>(values)));
        detail::encode_e2m1<32>(values, 2 * detail::E8m0::half_of(block.scale), block.numbers);
    }
    /// For attention: value i is codes[i] * factors[0].
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_unit(const unit& block, code* codes, float* factors) {
        detail::unpack_e2m1<32>(block.numbers, codes);
        factors_of(block, factors);
    }
    /// The same, without the codes.
    [[gnu::always_inline]] CELLAR_FUNCTION static void factors_of(const unit& block, float* factors) {
        *factors = detail::E8m0::half_of(block.scale);
    }
};

namespace detail {

template <class Format, bool FourOverSix>
struct Nvfp4 : InBlocks<Format, Nvfp4Block, 64, HalfOfE4m3, 16> {
    using encoding = ScaledGroups<FourOverSix>;
    static constexpr std::string_view name = "nvfp4";
    static constexpr auto levels = Levels::of(twice_e2m1, 8);
    static constexpr auto nibbles = &Nvfp4Block::numbers;

    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_unit(const float* values, Nvfp4Block& block) {
        for (std::ptrdiff_t group = 0; group < 4; ++group) {
            const float* const own = values + 16 * group;
            const float largest = largest_magnitude<16>(own);
            auto scale = Scale::nearest<std::int32_t>(largest / 6);
            if constexpr (FourOverSix) {
                const auto larger = Scale::nearest<std::int32_t>(largest / 4);
                if (error_of(own, value_of(larger)) < error_of(own, value_of(scale))) scale = larger;
            }
            block.scales[group] = static_cast<std::uint8_t>(scale);
            encode_e2m1<16>(own, scale == 0 ? __builtin_inff() : value_of(scale), // 0: all are 0
                            block.numbers + 8 * group);
        }
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_unit(const Nvfp4Block& block, std::int8_t* codes,
                                                                   HalfOfE4m3* factors) {
        for (std::ptrdiff_t group = 0; group < 4; ++group)
            unpack_e2m1<16>(block.numbers + 8 * group, codes + 16 * group);
        factors_of(block, factors);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void factors_of(const Nvfp4Block& block, HalfOfE4m3* factors) {
        __builtin_memcpy(factors, block.scales, sizeof(block.scales));
    }

private:
    using Scale = UnsignedE4m3;

    [[gnu::always_inline]] CELLAR_FUNCTION static float value_of(std::int32_t scale) {
        return Scale::value_of<float>(scale);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static float error_of(const float* values, float scale) {
        std::uint8_t codes[16];
        float errors[16];
        for (int i = 0; i < 16; ++i) codes[i] = nearest_e2m1(values[i], scale);
        for (int i = 0; i < 16; ++i) {
            const float error = values[i] - static_cast<float>(twice_e2m1(codes[i])) * (scale / 2);
            errors[i] = limited_above_zero(error * error, largest_float);
        }
        for (int i = 0; i < 4; ++i) errors[i] = (errors[i] + errors[4 + i]) + (errors[8 + i] + errors[12 + i]);
        return (errors[0] + errors[1]) + (errors[2] + errors[3]);
    }
};

} // namespace detail

/// 4.5 bits a value: E2M1 in groups of 16, each with a scale, which is an E4M3 without sign. A unit holds four groups.
/// With a, the largest magnitude in a group, errors are at most 0.18 a where a is between 6 * 2^-6 and 2688. There is
/// no second scale for a whole tensor: larger values become 2688, and with smaller ones errors are up to 6 * 2^-10
/// more. The bits are ggml's where the scale is between 2^-6 and 240.
///
/// A group with an infinity or a NaN decodes to NaNs. What was decoded is encoded to the same values again, if the
/// scale is a normal number.
struct nvfp4 : detail::Nvfp4<nvfp4, false> {};

/// The same, but a group's scale is a / 4 in place of a / 6 where that has the smaller sum of squared errors: 6 is far
/// from 4, so values at 5 / 6 of the largest one err most. What is stored is an nvfp4, so it has that name: names say
/// how units are read, and a cache of one of the two loads what the other one saved.
struct nvfp4_four_over_six : detail::Nvfp4<nvfp4_four_over_six, true> {};

static_assert(sizeof(mxfp4::unit) == 17 && sizeof(nvfp4::unit) == 36);

} // namespace cellar
