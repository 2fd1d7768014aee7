// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/format/detail/codes.hpp>
#include <cellar/format/detail/columns.hpp>
#include <cellar/format/detail/fp4_numbers.hpp>
#include <cellar/format/detail/iq4_encoder.hpp>
#include <cellar/format/detail/iq4_levels.hpp>
#include <cellar/format/detail/nearest_level.hpp>
#include <cellar/format/detail/numbers.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// What blocks hold: `encoding` of a format in blocks.
struct ByteSteps {};
template <int Zero>
struct SignedSteps {};
template <int Last>
struct StepsFromMinimum {};
struct NearestLevels {};
struct ScaledByPowers {};
template <bool FourOverSix>
struct ScaledGroups {};

/// In plain loops.
template <class Format>
struct EncodeBlocks {
    template <class Unit>
    [[gnu::always_inline]] static void run(const float* values, Unit* units, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) Format::encode_unit(values + i * Format::values_per_unit, units[i]);
    }
};

} // namespace cellar::detail

#ifdef CELLAR_HAS_ENCODERS

namespace cellar::detail::encoders {

// The first values of largest magnitude.
template <std::size_t Values, std::size_t... Row>
CELLAR_SIMD_INLINE four::Floats first_largest(const RowsOf<Values>& rows, const FourExtremes& extremes,
                                              std::index_sequence<Row...>) {
    if (any((extremes.largest ^ extremes.unsigned_largest) == INT32_MIN)) [[unlikely]]
        return four::Floats{detail::first_largest<Values>(rows[Row])...};
    const four::Ints positive = extremes.largest & INT32_MAX;
    const four::Ints negative = extremes.unsigned_largest & INT32_MAX;
    const four::Ints found = positive > negative ? extremes.largest : extremes.unsigned_largest;
    return reinterpret_cast<four::Floats>(found & ((found & INT32_MAX) != 0)); // zeros are positive
}

// 1 / x, and 0 where that is no finite number.
CELLAR_SIMD_INLINE four::Floats inverses_of(four::Floats x) {
    const four::Floats inverses = 1 / x;
    const auto bits = reinterpret_cast<four::Ints>(inverses);
    return reinterpret_cast<four::Floats>(bits & ((bits & INT32_MAX) < 0x7f800000));
}
// Byte i of a row: code i in the lower half, code n / 2 + i in the upper one. Codes of 4 bits.
template <std::size_t... I>
CELLAR_SIMD_INLINE void pair(Ints* codes, std::index_sequence<I...>) {
    ((codes[I] |= codes[I + sizeof...(I)] << 4), ...);
}
// The fifth bits of four codes, at their place among 32.
template <std::size_t Step, std::size_t... I>
CELLAR_SIMD_INLINE Ints fifths_of(Ints codes, std::index_sequence<I...>) {
    const Ints single = codes >> 4 & 0x01010101;
    const Ints pairs = single | single >> 7;
    constexpr Ints at = {static_cast<std::int32_t>(4 * (Step * parts + I / 4))...};
    return ((pairs | pairs >> 14) & 15) << at;
}
template <std::size_t... Part>
CELLAR_SIMD_INLINE four::Ints joined_parts(Ints of, std::index_sequence<Part...>) {
    return (part<Part>(of) | ...);
}
// Codes of 4 bits, or of 5 if the block has room for them.
template <class Block, std::size_t... Row, std::size_t... Step>
CELLAR_SIMD_INLINE void store_codes(Ints* codes, Block* const* blocks, std::index_sequence<Row...> all,
                                    std::index_sequence<Step...>) {
    if constexpr (requires { blocks[0]->high; }) {
        const Ints fifths = (fifths_of<Step>(codes[Step], Lanes{}) | ...);
        const four::Ints high = joined_parts(fifths, Parts{});
        std::uint32_t words[] = {static_cast<std::uint32_t>(high[Row])...};
        (std::memcpy(blocks[Row]->high, &words[Row], sizeof(words[Row])), ...);
        ((codes[Step] &= 0x0f0f0f0f), ...);
    }
    pair(codes, Steps<16>{});
    std::uint8_t* const to[] = {blocks[Row]->low...};
    store_rows(codes, to, 0, all);
}

struct NearestStep {
    Floats by;

    CELLAR_SIMD_INLINE Ints operator()(Floats value) const {
        const Floats x = Vector::product(value, by);
        const Ints rounding = bits_of(broadcast(almost_half)) | (bits_of(x) & INT32_MIN);
        return integers(x + reinterpret_cast<Floats>(rounding));
    }
};
template <class Block, class All>
CELLAR_SIMD_INLINE Factors scale(ByteSteps, const RowsOf<32>& rows, Block* const* blocks, All all) {
    const four::Ints largest = largest_magnitudes(rows, all);
    const four::Floats scales = reinterpret_cast<four::Floats>(largest) / 127.0F;
    store_halves(scales, &Block::scale, blocks, all);
    return {inverses_of(scales), four::Floats{}, !any(unusual(largest))};
}
template <class Block, std::size_t... Row, std::size_t... Step>
CELLAR_SIMD_INLINE void encode(ByteSteps, const RowsOf<32>& rows, Block* const* blocks, const Factors& factors,
                               std::index_sequence<Row...> all, std::index_sequence<Step...>) {
    constexpr std::uint32_t middles = 0x80808080; // no byte borrows from the next one
    constexpr auto signs = static_cast<std::int32_t>(middles);
    const NearestStep nearest{Vector::repeat(factors.by)};
    const Ints steps[] = {(sum(joined(columns(rows, Step, all), nearest), middles) ^ signs)...};
    std::uint8_t* const to[] = {reinterpret_cast<std::uint8_t*>(blocks[Row]->steps)...};
    store_rows(steps, to, 0, all);
    store_rows(steps + sizeof...(Step) / 2, to, 16, all);
}

template <int Zero>
struct SignedCode {
    Floats by;

    CELLAR_SIMD_INLINE Ints operator()(Floats value) const {
        return integers(Vector::product(value, by) + broadcast(Zero + 0.5F));
    }
};
// 2 * Zero becomes 2 * Zero - 1.
template <int Zero>
CELLAR_SIMD_INLINE Ints without_next(Ints codes) {
    return difference(codes, codes >> (Zero == 8 ? 4 : 5) & 0x01010101);
}
template <int Zero, class Block, class All>
CELLAR_SIMD_INLINE Factors scale(SignedSteps<Zero>, const RowsOf<32>& rows, Block* const* blocks, All all) {
    const FourExtremes extremes = extremes_of(rows, all);
    const four::Floats scales = first_largest(rows, extremes, all) / static_cast<float>(-Zero);
    store_halves(scales, &Block::scale, blocks, all);
    return {inverses_of(scales), four::Floats{}, !any(unusual(extremes.magnitudes()))};
}
template <int Zero, class Block, class All, std::size_t... Step>
CELLAR_SIMD_INLINE void encode(SignedSteps<Zero>, const RowsOf<32>& rows, Block* const* blocks, const Factors& factors,
                               All all, std::index_sequence<Step...> steps) {
    const SignedCode<Zero> code{Vector::repeat(factors.by)};
    Ints codes[] = {without_next<Zero>(joined(columns(rows, Step, all), code))...};
    store_codes(codes, blocks, all, steps);
}

struct CodeFromMinimum {
    Floats minimum;
    Floats by;

    CELLAR_SIMD_INLINE Ints operator()(Floats value) const {
        return integers(Vector::product(value - minimum, by) + broadcast(0.5F));
    }
};
template <int Last, class Block, std::size_t... Row>
CELLAR_SIMD_INLINE Factors scale(StepsFromMinimum<Last>, const RowsOf<32>& rows, Block* const* blocks,
                                 std::index_sequence<Row...> all) {
    const FourExtremes extremes = extremes_of(rows, all);
    auto [min, max] = ranges_of(rows, extremes, all);
    if (any(min == 0)) [[unlikely]] // of which sign?
        min = four::Floats{detail::extremes_of<32>(rows[Row]).min...};
    const four::Floats scales = (max - min) / static_cast<float>(Last);
    store_halves(scales, &Block::scale, blocks, all);
    store_halves(min, &Block::minimum, blocks, all);
    return {inverses_of(scales), min, !any(unusual(extremes.magnitudes()))};
}
template <int Last, class Block, class All, std::size_t... Step>
CELLAR_SIMD_INLINE void encode(StepsFromMinimum<Last>, const RowsOf<32>& rows, Block* const* blocks,
                               const Factors& factors, All all, std::index_sequence<Step...> steps) {
    const CodeFromMinimum code{Vector::repeat(factors.other), Vector::repeat(factors.by)};
    Ints codes[] = {joined(columns(rows, Step, all), code)...};
    store_codes(codes, blocks, all, steps);
}

// Byte by byte.
CELLAR_SIMD_INLINE Ints look_up(const ByteTable& table, Ints index) {
    Bytes bytes;
    std::memcpy(&bytes, table.bytes, sizeof(bytes));
    return reinterpret_cast<Ints>(Vector::look_up(bytes, reinterpret_cast<Bytes>(index)));
}
/// How many of the middles integers reach.
template <class Integer>
CELLAR_SIMD_INLINE Ints ranks_of(const Columns& x, const Integer& integer, const NearestLevel& table) {
    constexpr std::uint32_t bias = 0x08000800; // then -256 begins bucket 0x70, and 0 bucket 0x80
    constexpr auto signs = static_cast<std::int32_t>(0x80808080);
    const Ints even = sum(sum(integer(x.of[0]), integer(x.of[2]) << 16), bias);
    const Ints odd = sum(sum(integer(x.of[1]), integer(x.of[3]) << 16), bias);
    const Ints buckets = (even >> 4 & 0x00ff00ff) | (odd << 4 & static_cast<std::int32_t>(0xff00ff00));
    const Ints rest = (even & 0x000f000f) | (odd & 0x000f000f) << 8;
    const Ints found = look_up(table.negative, buckets) | look_up(table.positive, buckets ^ signs);
    return sum(found, rest) >> 4 & 0x0f0f0f0f;
}
template <std::size_t K>
CELLAR_SIMD_INLINE Floats signed_bytes(Ints bytes) {
    return __builtin_convertvector(bytes << (24 - 8 * K) >> 24, Floats);
}

// Twice a value in levels, rounded down.
struct RoundedDown {
    Floats by;

    CELLAR_SIMD_INLINE Ints operator()(Floats value) const { return integers(Vector::floor(value * by)); }
};
struct Sums {
    four::Floats of_values{};
    four::Floats of_levels{};
};
// The products that `iq4_nl::least_squares` adds, in its order.
template <std::size_t... K, std::size_t... I>
CELLAR_SIMD_INLINE void add_products(const Columns& x, Ints levels, Sums& sums, std::index_sequence<K...>,
                                     std::index_sequence<I...>) {
    const Floats level[] = {signed_bytes<K>(levels)...};
    const Floats weighted[] = {(x.of[K] * x.of[K] * level[K])...};
    const Floats with_values[] = {Vector::product(weighted[K], x.of[K])...};
    const Floats with_levels[] = {Vector::product(weighted[K], level[K])...};
    ((sums.of_values += part<I / 4>(with_values[I % 4])), ...);
    ((sums.of_levels += part<I / 4>(with_levels[I % 4])), ...);
}
template <class Block, class All>
CELLAR_SIMD_INLINE Factors scale(NearestLevels, const RowsOf<32>& rows, Block* const*, All all) {
    const FourExtremes extremes = extremes_of(rows, all);
    const four::Floats largest = first_largest(rows, extremes, all);
    return {2 * inverses_of(largest / static_cast<float>(iq4_levels[0])), largest,
            !any(unusual(extremes.magnitudes()))};
}
template <class Block, class All, std::size_t... Step>
CELLAR_SIMD_INLINE void encode(NearestLevels, const RowsOf<32>& rows, Block* const* blocks, const Factors& factors,
                               All all, std::index_sequence<Step...> steps) {
    const RoundedDown twice{Vector::repeat(factors.by)};
    Sums sums;
    Ints codes[sizeof...(Step)];
    CELLAR_VECTOR_LOOP // unrolled, compilers leave the sums, which are long chains, to the end
        for (std::size_t step = 0; step < sizeof...(Step); ++step) {
        const Columns x = columns(rows, step, all);
        codes[step] = ranks_of(x, twice, iq4_nearest);
        add_products(x, look_up(iq4_level_bytes, codes[step]), sums, Rows{}, Lanes{});
    }
    store_codes(codes, blocks, all, steps);
    store_halves(iq4_scale<four::Floats, four::Ints>(factors.other, sums.of_values, sums.of_levels), &Block::scale,
                 blocks, all);
}

/// value * 32 / scale, without the fraction. Values in the middle between two numbers, and no others, become integers
/// that are nearer to zero, since the factor is the float below the nearest one to 32 / scale: so it is for all scales
/// of four bits.
struct Truncated {
    Floats by;

    CELLAR_SIMD_INLINE static four::Floats factors_of(four::Floats scales) {
        const auto nearest = reinterpret_cast<four::Unsigned>(32.0F / scales);
        return reinterpret_cast<four::Floats>(reinterpret_cast<four::Ints>(nearest - 1) & (scales != 0));
    }
    CELLAR_SIMD_INLINE Ints operator()(Floats value) const { return integers(value * by); }
};
// Four rows of 16 codes.
template <std::size_t... Quarter>
CELLAR_SIMD_INLINE void store_rows_of_eight(const Ints* codes, std::uint8_t* to, std::index_sequence<Quarter...> all) {
    const four::Ints of[] = {part<Quarter % parts>(codes[Quarter / parts])...};
    const four::Ints first = of[0] | of[2] << 4;
    const four::Ints second = of[1] | of[3] << 4;
    const four::Ints rows[] = {four::zip<0>(first, second, all), four::zip<2>(first, second, all)};
    std::memcpy(to, rows, sizeof(rows));
}
template <std::size_t Values, std::size_t... Step>
CELLAR_SIMD_INLINE void encode_e2m1(const RowsOf<Values>& rows, const Factors& factors, std::uint8_t* const* to,
                                    std::index_sequence<Step...>) {
    const Truncated truncated{Vector::repeat(factors.by)};
    Ints codes[] = {look_up(e2m1_codes, ranks_of(columns(rows, Step, Rows{}), truncated, e2m1_nearest))...};
    if constexpr (Values == 32) {
        pair(codes, Steps<16>{});
        store_rows(codes, to, 0, Rows{});
    } else {
        store_rows_of_eight(codes, to[0], Rows{});
    }
}
template <class Block, std::size_t... Row>
CELLAR_SIMD_INLINE Factors scale(ScaledByPowers, const RowsOf<32>& rows, Block* const* blocks,
                                 std::index_sequence<Row...> all) {
    const four::Ints largest = largest_magnitudes(rows, all);
    ((blocks[Row]->scale = E8m0::quarter_of(largest[Row])), ...);
    const four::Ints powers = ((largest & 0x7f800000) - (2 << 23)) & (largest != 0);
    return {Truncated::factors_of(reinterpret_cast<four::Floats>(powers)), four::Floats{}, !any(unusual(largest))};
}
template <class Block, std::size_t... Row, std::size_t... Step>
CELLAR_SIMD_INLINE void encode(ScaledByPowers, const RowsOf<32>& rows, Block* const* blocks, const Factors& factors,
                               std::index_sequence<Row...>, std::index_sequence<Step...> steps) {
    std::uint8_t* const to[] = {blocks[Row]->numbers...};
    encode_e2m1(rows, factors, to, steps);
}

template <std::size_t K>
CELLAR_SIMD_INLINE Floats squared_error(const Columns& x, Ints twice, Floats half_scales) {
    const Floats error = x.of[K] - signed_bytes<K>(twice) * half_scales; // a product without rounding
    return Vector::product(error, error);
}
template <std::size_t Step>
CELLAR_SIMD_INLINE Columns squared_errors(const RowsOf<16>& rows, const Truncated& truncated, Floats half_scales) {
    const Columns x = columns(rows, Step, Rows{});
    const Ints twice = look_up(e2m1_twice, ranks_of(x, truncated, e2m1_nearest));
    return {{squared_error<0>(x, twice, half_scales), squared_error<1>(x, twice, half_scales),
             squared_error<2>(x, twice, half_scales), squared_error<3>(x, twice, half_scales)}};
}
// Of values 4 Q + K.
template <std::size_t K, std::size_t Q>
CELLAR_SIMD_INLINE four::Floats quarter_of(const Columns* columns) {
    return part<Q % parts>(columns[Q / parts].of[K]);
}
template <std::size_t K>
CELLAR_SIMD_INLINE four::Floats sum_of(const Columns* columns) {
    return (quarter_of<K, 0>(columns) + quarter_of<K, 1>(columns))
           + (quarter_of<K, 2>(columns) + quarter_of<K, 3>(columns));
}
// In the order of `Nvfp4::error_of`.
template <std::size_t... Step>
CELLAR_SIMD_INLINE four::Floats errors_of(const RowsOf<16>& rows, four::Floats scales, std::index_sequence<Step...>) {
    const Truncated truncated{Vector::repeat(Truncated::factors_of(scales))};
    const Floats half_scales = Vector::repeat(scales / 2.0F);
    const Columns errors[] = {squared_errors<Step>(rows, truncated, half_scales)...};
    return (sum_of<0>(errors) + sum_of<1>(errors)) + (sum_of<2>(errors) + sum_of<3>(errors));
}
template <bool FourOverSix, class Block, std::size_t... Group>
CELLAR_SIMD_INLINE Factors scale(ScaledGroups<FourOverSix>, const RowsOf<16>& groups, Block* const* blocks,
                                 std::index_sequence<Group...> all) {
    using Scale = UnsignedE4m3;
    const four::Ints bits = largest_magnitudes(groups, all);
    const auto largest = reinterpret_cast<four::Floats>(bits);
    auto scales = Scale::nearest<four::Ints>(largest / 6.0F);
    auto factors = Scale::value_of<four::Floats>(scales);
    if constexpr (FourOverSix) {
        const auto others = Scale::nearest<four::Ints>(largest / 4.0F);
        const auto larger = Scale::value_of<four::Floats>(others);
        const four::Ints is_better = errors_of(groups, larger, Steps<16>{}) < errors_of(groups, factors, Steps<16>{});
        scales = is_better ? others : scales;
        factors = is_better ? larger : factors;
    }
    ((blocks[0]->scales[Group] = static_cast<std::uint8_t>(scales[Group])), ...);
    const four::Ints are_too_large = (largest >= 8 * factors) & (scales != 0); // for a NearestLevel
    return {Truncated::factors_of(factors), four::Floats{}, !any(unusual(bits) | are_too_large)};
}
template <bool FourOverSix, class Block, class All, std::size_t... Step>
CELLAR_SIMD_INLINE void encode(ScaledGroups<FourOverSix>, const RowsOf<16>& groups, Block* const* blocks,
                               const Factors& factors, All, std::index_sequence<Step...> steps) {
    std::uint8_t* const to[] = {blocks[0]->numbers};
    encode_e2m1(groups, factors, to, steps);
}

/// The units of four rows of `Format`, or the one that all four belong to.
template <class Format>
struct FourRows {
    static constexpr std::size_t values_per_row = Format::values_per_unit == 64 ? 16 : 32;
    static constexpr std::size_t units = Format::values_per_unit == 64 ? 1 : 4;
    using Unit = typename Format::unit;

    RowsOf<values_per_row> rows;
    Unit* blocks[4];
    std::size_t n; ///< of units

    CELLAR_SIMD_INLINE FourRows(const float* values, Unit* all, std::size_t first, std::size_t end)
        : rows{values + first * Format::values_per_unit, units == 1 || end - first > 4 ? 4 : end - first},
          n{units == 1 ? 1 : rows.n} {
        for (std::size_t i = 0; i < 4; ++i) blocks[i] = all + first + (units == 1 ? 0 : rows.index(i));
    }
};
template <class Format>
CELLAR_SIMD_FUNCTION void encode(const float* values, typename Format::unit* units, std::size_t n) {
    using Some = FourRows<Format>;
    constexpr typename Format::encoding encoding{};
    constexpr Steps<Some::values_per_row> steps{};
    Factors factors[most_fours]; // NOLINT(misc-const-correctness): its types are those of a template
    for (std::size_t begin = 0; begin < n; begin += most_fours * Some::units) {
        const std::size_t end = n - begin < most_fours * Some::units ? n : begin + most_fours * Some::units;
        for (std::size_t i = begin; i < end; i += Some::units) {
            const Some some{values, units, i, end};
            factors[(i - begin) / Some::units] = scale(encoding, some.rows, some.blocks, Rows{});
        }
        for (std::size_t i = begin; i < end; i += Some::units) {
            const Some some{values, units, i, end};
            const Factors& own = factors[(i - begin) / Some::units];
            encode(encoding, some.rows, some.blocks, own, Rows{}, steps);
            if (!own.are_usual) [[unlikely]]
                EncodeBlocks<Format>::run(some.rows.values, units + i, some.n);
        }
    }
}

#ifdef CELLAR_HAS_X86_VECTORS
/// Sixteen blocks at a time if their numbers are usual.
template <class Format>
void encode_with_wide_vectors(const float* values, typename Format::unit* units, std::size_t n) {
    constexpr std::size_t some = wide::blocks;
    std::size_t i = 0;
    for (; i + some <= n; i += some) {
        const float* const own = values + i * Format::values_per_unit;
        if (!wide::encode(own, units + i)) encode<Format>(own, units + i, some);
    }
    encode<Format>(values + i * Format::values_per_unit, units + i, n - i);
}
#endif

} // namespace cellar::detail::encoders

#endif

namespace cellar::detail {

/// Encodes n blocks, to the bits of Format::encode_unit.
template <class Format>
void encode_blocks(const float* values, typename Format::unit* units, std::size_t n) {
#ifdef CELLAR_HAS_X86_VECTORS
    if constexpr (std::is_same_v<typename Format::encoding, NearestLevels>) {
        if (Avx512Vector::is_available()) return encoders::encode_with_wide_vectors<Format>(values, units, n);
    }
#endif
#ifdef CELLAR_HAS_ENCODERS
    if (simd::is_available()) return encoders::encode<Format>(values, units, n);
#endif
    EncodeBlocks<Format>::run(values, units, n);
}

} // namespace cellar::detail
