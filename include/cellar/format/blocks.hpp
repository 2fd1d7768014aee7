// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/half.hpp>
#include <cellar/format/detail/blocks.hpp>
#include <cellar/format/detail/codes.hpp>
#include <cellar/format/detail/iq4_levels.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/simd/levels.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Storage formats of llama.cpp's caches, in blocks of 32 values with scales in half precision. Units have the bytes of
/// ggml's blocks, and are encoded to the same bits, so that memory and files can be shared.
///
/// Of all of them:
/// - a is the largest magnitude in a block, and r the distance between its largest and its smallest value. Errors are
///   given without what the rounding of scales and minima to half adds to them: 2^-11 of a, or of a + r where there is
///   a minimum, and 2^-18.
/// - Scales and minima overflow from 65520 on, as half does. Scales below 2^-25 are stored as zero.
/// - A block with an infinity or a NaN decodes to values none of which is finite. ggml may have other bits there.
/// - What was decoded is encoded to the same bits again, unless the scale is stored as zero, or is so small beside the
///   minimum that sums of both are rounded.
namespace cellar {

namespace detail {

// The structures of ggml, with its order of members.
struct BytesBlock {
    half scale;
    std::int8_t steps[32];
};
struct NibblesBlock {
    half scale;
    std::uint8_t low[16]; // byte i: the lower 4 bits of codes i and 16 + i
};
struct NibblesMinimumBlock {
    half scale;
    half minimum;
    std::uint8_t low[16];
};
struct FiveBitsBlock {
    half scale;
    std::uint8_t high[4]; // bit i of them: the fifth bit of code i
    std::uint8_t low[16];
};
struct FiveBitsMinimumBlock {
    half scale;
    half minimum;
    std::uint8_t high[4];
    std::uint8_t low[16];
};

/// Codes of 4 bits, or of 5 if the block has room for them.
template <class Block>
[[gnu::always_inline]] CELLAR_FUNCTION inline void pack_codes(const std::uint8_t (&codes)[32], Block& block) {
    pack_halves<32>(codes, block.low);
    if constexpr (sizeof(Block) > sizeof(NibblesMinimumBlock))
        for (int i = 0; i < 4; ++i)
            block.high[i] =
                static_cast<std::uint8_t>(joined<1>(load_eight(codes + std::ptrdiff_t{8} * i) >> 4 & low_bits(1, 8)));
}
/// The codes less `Zero`.
template <int Zero>
[[gnu::always_inline]] CELLAR_FUNCTION inline void unpack_nibbles(const std::uint8_t* __restrict low,
                                                                  std::int8_t* __restrict to) {
    CELLAR_VECTOR_LOOP
    for (int i = 0; i < 16; ++i) to[i] = static_cast<std::int8_t>((low[i] & 0xf) - Zero);
    CELLAR_VECTOR_LOOP
    for (int i = 0; i < 16; ++i) to[16 + i] = static_cast<std::int8_t>((low[i] >> 4) - Zero);
}
/// Eight codes in 64 bits, with their fifth bits.
template <int Zero>
[[gnu::always_inline]] CELLAR_FUNCTION inline void store_with_fifths(std::uint64_t codes, std::uint8_t fifths,
                                                                     std::int8_t* to) {
    constexpr std::uint64_t ones = low_bits(1, 8);
    codes |= separated<1>(fifths) << 4;
    codes = ((codes | ones << 7) - Zero * ones) ^ ones << 7; // no byte borrows from the next one
    store_eight(codes, reinterpret_cast<std::uint8_t*>(to));
}
template <int Zero = 0, class Block>
[[gnu::always_inline]] CELLAR_FUNCTION inline void unpack_codes(const Block& block, std::int8_t* to) {
    if constexpr (sizeof(Block) <= sizeof(NibblesMinimumBlock)) {
        unpack_nibbles<Zero>(block.low, to);
    } else {
        constexpr std::uint64_t lower = low_bits(4, 8);
        for (std::ptrdiff_t i = 0; i < 2; ++i) {
            const std::uint64_t both = load_eight(block.low + 8 * i);
            store_with_fifths<Zero>(both & lower, block.high[i], to + 8 * i);
            store_with_fifths<Zero>(both >> 4 & lower, block.high[2 + i], to + 16 + 8 * i);
        }
    }
}

/// Integers in [-Zero, Zero) times a scale: the one of largest magnitude is -Zero.
template <class Format, class Block, int Zero>
struct SignedBlocks : InBlocks<Format, Block, 32, half> {
    using encoding = SignedSteps<Zero>;

    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_unit(const float* values, Block& block) {
        constexpr auto zero = static_cast<float>(Zero);
        const float scale = first_largest<32>(values) / -zero;
        const float inverse = inverse_of(scale);
        std::uint8_t codes[32];
        for (int i = 0; i < 32; ++i) {
            const auto code = static_cast<std::int32_t>(limited(values[i] * inverse, zero) + (zero + 0.5F));
            codes[i] = static_cast<std::uint8_t>(code < 2 * Zero ? code : 2 * Zero - 1);
        }
        block.scale = static_cast<half>(scale);
        pack_codes(codes, block);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_unit(const Block& block, std::int8_t* to, half* factors) {
        unpack_codes<Zero>(block, to);
        factors_of(block, factors);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void factors_of(const Block& block, half* factors) {
        *factors = block.scale;
    }
};

/// Integers in [0, Last] times a scale, and a minimum.
template <class Format, class Block, int Last>
struct MinimumBlocks : InBlocks<Format, Block, 32, half, 32, true> {
    using encoding = StepsFromMinimum<Last>;

    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_unit(const float* values, Block& block) {
        constexpr auto last = static_cast<float>(Last);
        const auto [min, max] = extremes_of<32>(values);
        const float scale = (max - min) / last;
        const float inverse = inverse_of(scale);
        std::uint8_t codes[32];
        for (int i = 0; i < 32; ++i)
            codes[i] = static_cast<std::uint8_t>( // NOLINTNEXTLINE(bugprone-incorrect-roundings): as ggml rounds
                static_cast<std::int32_t>(limited_above_zero((values[i] - min) * inverse, last) + 0.5F));
        block.scale = static_cast<half>(scale);
        block.minimum = static_cast<half>(min);
        pack_codes(codes, block);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_unit(const Block& block, std::int8_t* to, half* factors,
                                                                   half* offsets) {
        unpack_codes(block, to);
        factors_of(block, factors, offsets);
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void factors_of(const Block& block, half* factors, half* offsets) {
        *factors = block.scale;
        *offsets = block.minimum;
    }
};

} // namespace detail

/// 8.5 bits a value: integers of 8 bits times a scale. Errors are at most a / 254.
struct q8_0 : detail::InBlocks<q8_0, detail::BytesBlock, 32, half> {
    using encoding = detail::ByteSteps;
    static constexpr std::string_view name = "q8_0";

    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_unit(const float* values, unit& block) {
        const float scale = detail::largest_magnitude<32>(values) / 127;
        const float inverse = detail::inverse_of(scale);
        block.scale = static_cast<half>(scale);
        detail::nearest_steps<32>(values, inverse, block.steps);
    }
    /// For attention: value i is codes[i] * factors[0].
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_unit(const unit& block, code* codes, half* factors) {
        __builtin_memcpy(codes, block.steps, sizeof(block.steps));
        *factors = block.scale;
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static void decode_unit(const unit& block,
                                                                   float* values) { // without a copy of the steps
        detail::multiples<32>(block.steps, static_cast<float>(block.scale), values);
    }
};

/// 4.5 bits a value: 16 steps times a scale. Errors are at most a / 8, and a / 16 where the value has the sign of the
/// one of largest magnitude.
struct q4_0 : detail::SignedBlocks<q4_0, detail::NibblesBlock, 8> {
    static constexpr std::string_view name = "q4_0";
    static constexpr auto levels = detail::Levels::of([](int code) { return code - 8; }, 16);
    static constexpr auto nibbles = &unit::low;
};
/// 5 bits a value: 16 steps from the smallest value on. Errors are at most r / 30.
struct q4_1 : detail::MinimumBlocks<q4_1, detail::NibblesMinimumBlock, 15> {
    static constexpr std::string_view name = "q4_1";
    static constexpr auto levels = detail::Levels::of([](int code) { return code; }, 16);
    static constexpr auto nibbles = &unit::low;
};
/// 5.5 bits a value: 32 steps times a scale. Errors are at most a / 16, and a / 32 where the value has the sign of the
/// one of largest magnitude.
struct q5_0 : detail::SignedBlocks<q5_0, detail::FiveBitsBlock, 16> {
    static constexpr std::string_view name = "q5_0";
};
/// 6 bits a value: 32 steps from the smallest value on. Errors are at most r / 62.
struct q5_1 : detail::MinimumBlocks<q5_1, detail::FiveBitsMinimumBlock, 31> {
    static constexpr std::string_view name = "q5_1";
};

/// 4.5 bits a value: 16 levels, which are closer near zero, times a scale of least squares. Errors are at most 0.21 a,
/// and usually a tenth smaller than those of q4_0. As ggml's `from_float` has it, which caches are written with:
/// `ggml_quantize_chunk` searches for better scales.
struct iq4_nl : detail::InBlocks<iq4_nl, detail::NibblesBlock, 32, half> {
    using encoding = detail::NearestLevels;
    static constexpr std::string_view name = "iq4_nl";
    static constexpr auto levels = detail::Levels::of([](int code) { return detail::iq4_levels[code]; }, 16);
    static constexpr auto nibbles = &unit::low;

    [[gnu::always_inline]] CELLAR_FUNCTION static void encode_unit(const float* values, unit& block) {
        const float largest = detail::first_largest<32>(values);
        const float inverse = detail::inverse_of(largest / lowest);
        std::int32_t twice[32]; // rounded down, as the middles between levels are halves of integers
        for (int i = 0; i < 32; ++i) {
            const float scaled = detail::limited(2 * (values[i] * inverse), 254);
            const auto truncated = static_cast<std::int32_t>(scaled);
            const float rest = scaled - static_cast<float>(truncated);
            twice[i] = truncated + (__builtin_bit_cast(std::int32_t, rest) >> 31);
        }
        std::uint8_t codes[32];
        std::int8_t chosen[32];
        for (int i = 0; i < 32; ++i) {
            codes[i] = nearest_code(twice[i]);
            chosen[i] = level_of(codes[i]);
        }
        block.scale = least_squares(largest, values, chosen);
        detail::pack_codes(codes, block);
    }
    /// For attention: value i is codes[i] * factors[0].
    [[gnu::always_inline]] CELLAR_FUNCTION static void unpack_unit(const unit& block, code* to, half* factors) {
        std::int8_t codes[32];
        detail::unpack_codes(block, codes);
        for (int i = 0; i < 32; ++i) to[i] = level_of(codes[i]);
        factors_of(block, factors);
    }
    /// The same, without the codes.
    [[gnu::always_inline]] CELLAR_FUNCTION static void factors_of(const unit& block, half* factors) {
        *factors = block.scale;
    }

private:
    static constexpr float lowest = detail::iq4_levels[0];

    /// The code of the level that is nearest to n / 2, at n + 256; of two, the higher one.
    struct Nearest {
        std::uint8_t codes[512] = {};

        constexpr Nearest() {
            for (int n = -256; n < 256; ++n)
                for (std::uint8_t code = 1; code < 16; ++code)
                    if (n >= detail::iq4_levels[code - 1] + detail::iq4_levels[code]) codes[n + 256] = code;
        }
    };
    static const Nearest nearest;

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    CELLAR_FUNCTION static std::int8_t level_of(int code) {
        return static_cast<std::int8_t>((code < 8 ? detail::lower_levels : detail::upper_levels) >> code % 8 * 8);
    }
    CELLAR_FUNCTION static std::uint8_t nearest_code(std::int32_t twice) {
        int code = 0;
        for (int i = 1; i < 16; ++i) code += twice >= level_of(i - 1) + level_of(i);
        return static_cast<std::uint8_t>(code);
    }
#else
    [[gnu::always_inline]] CELLAR_FUNCTION static std::int8_t level_of(int code) {
        return detail::iq4_levels[code];
    }
    [[gnu::always_inline]] CELLAR_FUNCTION static std::uint8_t nearest_code(std::int32_t twice) {
        return nearest.codes[twice + 256];
    }
#endif

    /// The scale of least squared errors, each weighted by the square of its value. In ggml's order.
    [[gnu::always_inline]] CELLAR_FUNCTION static half least_squares(float largest, const float* values,
                                                                     const std::int8_t* chosen) {
        float with_values[32]; // apart from the sums, whose order is a matter of the bits
        float with_levels[32];
        for (int i = 0; i < 32; ++i) {
            const auto level = static_cast<float>(chosen[i]);
            const float weighted = values[i] * values[i] * level;
            with_values[i] = detail::limited(weighted * values[i], detail::largest_float);
            with_levels[i] = detail::limited(weighted * level, detail::largest_float);
        }
        float of_values = 0;
        float of_levels = 0;
        for (int i = 0; i < 32; ++i) {
            of_values += with_values[i];
            of_levels += with_levels[i];
        }
        return static_cast<half>(detail::iq4_scale<float, std::int32_t>(largest, of_values, of_levels));
    }
};

inline constexpr iq4_nl::Nearest iq4_nl::nearest{};

static_assert(sizeof(q8_0::unit) == 34 && sizeof(q4_0::unit) == 18 && sizeof(iq4_nl::unit) == 18
              && sizeof(q4_1::unit) == 20 && sizeof(q5_0::unit) == 22 && sizeof(q5_1::unit) == 24
              && alignof(q5_1::unit) == 2);

} // namespace cellar
