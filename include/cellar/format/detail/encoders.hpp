// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/half.hpp>
#include <cellar/format/detail/codes.hpp>
#include <cellar/format/detail/fp4_numbers.hpp>
#include <cellar/format/detail/iq4_levels.hpp>
#include <cellar/format/detail/nearest_level.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
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

#if defined(CELLAR_HAS_X86_VECTORS) || defined(CELLAR_HAS_NEON)
#define CELLAR_HAS_ENCODERS 1

/// Encodes blocks and groups with AVX2 or NEON, in registers, to the bits of each format's `encode_unit`. Four rows of
/// values at a time: blocks, or the groups of one. They are read in columns, where each lane belongs to one row: so the
/// factors of rows are a vector, their sums are in order, and their codes lie side by side. Without loops over vectors,
/// because -O2 does not unroll them, and the vectors would lie in memory.
namespace cellar::detail::encoders {

using namespace simd::native;
namespace four = simd::baseline;
using Bytes = Vector::Bytes;
inline constexpr std::size_t width = lanes;
using Rows = std::make_index_sequence<4>;
using Two = std::make_index_sequence<2>;
using Parts = std::make_index_sequence<width / 4>; // of four lanes
inline constexpr std::size_t parts = width / 4;
/// The steps in which columns of so many values are read.
template <std::size_t Values>
using Steps = std::make_index_sequence<Values / width>;

CELLAR_SIMD_INLINE Ints bits_of(Floats x) {
    return reinterpret_cast<Ints>(x);
}
CELLAR_SIMD_INLINE Ints integers(Floats x) {
    return __builtin_convertvector(x, Ints);
}
CELLAR_SIMD_INLINE bool any(four::Ints of) {
    using Words = long long __attribute__((vector_size(16)));
    const auto words = reinterpret_cast<Words>(of);
    return (words[0] | words[1]) != 0;
}
// Modulo 2^32: codes lie side by side, and are any numbers where values are not usual.
CELLAR_SIMD_INLINE Ints sum(Ints a, Ints b) {
    return reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
}
CELLAR_SIMD_INLINE Ints sum(Ints a, std::uint32_t b) {
    return reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(a) + b);
}
CELLAR_SIMD_INLINE Ints difference(Ints a, Ints b) {
    return reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(a) - reinterpret_cast<Unsigned>(b));
}
template <class V, class... More>
CELLAR_SIMD_INLINE V greatest(V first, More... more) {
    if constexpr (sizeof...(more) == 0) {
        return first;
    } else {
        const V next = greatest(more...);
        return first > next ? first : next;
    }
}
template <class V, class... More>
CELLAR_SIMD_INLINE V least(V first, More... more) {
    if constexpr (sizeof...(more) == 0) {
        return first;
    } else {
        const V next = least(more...);
        return first < next ? first : next;
    }
}

/// Four rows, of which the first n are there. The others are some of these again.
template <std::size_t Values>
struct RowsOf {
    const float* values;
    std::size_t n;

    CELLAR_SIMD_INLINE std::size_t index(std::size_t row) const { return row < n ? row : row & (n - 1); }
    CELLAR_SIMD_INLINE const float* operator[](std::size_t row) const { return values + index(row) * Values; }
};

// Rows that are no zeros and whose largest magnitude, as bits, is not between 2^-40 and 2^40.
CELLAR_SIMD_INLINE four::Ints unusual(four::Ints largest) {
    constexpr std::int32_t least = (127 - 40) << 23;
    constexpr std::int32_t bound = (127 + 40) << 23;
    return (largest >= bound) | ((largest < least) & (largest != 0));
}
template <std::size_t... I, std::size_t... Part>
CELLAR_SIMD_INLINE four::Ints largest_magnitude(const float* row, std::index_sequence<I...>,
                                                std::index_sequence<Part...>) {
    const Ints largest = greatest((bits_of(load(row + width * I)) & INT32_MAX)...);
    return greatest(part<Part>(largest)...);
}
/// The bits of the largest magnitudes. That of a NaN is larger than all numbers.
template <std::size_t Values, std::size_t... Row>
CELLAR_SIMD_INLINE four::Ints largest_magnitudes(const RowsOf<Values>& rows, std::index_sequence<Row...>) {
    four::Ints of[] = {largest_magnitude(rows[Row], Steps<Values>{}, Parts{})...};
    four::transpose<4>(of, Two{});
    return greatest(of[Row]...);
}

/// The extremes of four rows, as the bits of floats, which are compared as integers: negative floats are negative, or
/// without signs larger than the others.
struct FourExtremes {
    four::Ints largest;          ///< with signs: the largest positive float, or without one the lowest
    four::Ints unsigned_largest; ///< the lowest negative float, or without one the largest

    CELLAR_SIMD_INLINE four::Ints magnitudes() const {
        return greatest(largest & INT32_MAX, unsigned_largest & INT32_MAX);
    }
};
template <std::size_t... I, std::size_t... Part>
CELLAR_SIMD_INLINE void fold(const float* row, four::Ints& largest, four::Ints& unsigned_largest,
                             std::index_sequence<I...>, std::index_sequence<Part...>) {
    const Ints x[] = {bits_of(load(row + width * I))...};
    const Ints most = greatest(x[I]...);
    const Unsigned unsigned_most = greatest(reinterpret_cast<Unsigned>(x[I])...);
    largest = greatest(part<Part>(most)...);
    unsigned_largest = reinterpret_cast<four::Ints>(greatest(part<Part>(unsigned_most)...));
}
template <std::size_t Values, std::size_t... Row>
CELLAR_SIMD_INLINE FourExtremes extremes_of(const RowsOf<Values>& rows, std::index_sequence<Row...>) {
    four::Ints largest[4];
    four::Ints unsigned_largest[4];
    (fold(rows[Row], largest[Row], unsigned_largest[Row], Steps<Values>{}, Parts{}), ...);
    four::transpose<4>(largest, Two{});
    four::transpose<4>(unsigned_largest, Two{});
    return {greatest(largest[Row]...),
            reinterpret_cast<four::Ints>(greatest(reinterpret_cast<four::Unsigned>(unsigned_largest[Row])...))};
}
struct FourRanges {
    four::Floats min;
    four::Floats max;
};
template <std::size_t Values, std::size_t... Row>
CELLAR_SIMD_INLINE FourRanges ranges_of(const RowsOf<Values>& rows, const FourExtremes& extremes,
                                        std::index_sequence<Row...>) {
    if (any((extremes.largest ^ extremes.unsigned_largest) >= 0)) [[unlikely]] // there is only one sign
        return {four::Floats{detail::extremes_of<Values>(rows[Row]).min...},
                four::Floats{detail::extremes_of<Values>(rows[Row]).max...}};
    return {reinterpret_cast<four::Floats>(extremes.unsigned_largest),
            reinterpret_cast<four::Floats>(extremes.largest)};
}
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

/// What the rows of a block are multiplied by, and what comes before or after that.
struct Factors {
    four::Floats by;
    four::Floats other;
    bool are_usual;
};

// 1 / x, and 0 where that is no finite number.
CELLAR_SIMD_INLINE four::Floats inverses_of(four::Floats x) {
    const four::Floats inverses = 1 / x;
    const auto bits = reinterpret_cast<four::Ints>(inverses);
    return reinterpret_cast<four::Floats>(bits & ((bits & INT32_MAX) < 0x7f800000));
}
template <class Block, std::size_t... Row>
CELLAR_SIMD_INLINE void store_halves(four::Floats floats, half Block::*member, Block* const* blocks,
                                     std::index_sequence<Row...>) {
    const auto halves = Vector::halves_of(floats);
    ((blocks[Row]->*member = half::from_bits(static_cast<std::uint16_t>(halves[Row]))), ...);
}

/// Lane 4 p + r of vector k is value 4 p + k of row r, of as many values as a vector has lanes.
struct Columns {
    Floats of[4];
};
template <std::size_t First, std::size_t... I>
CELLAR_SIMD_INLINE Floats zip_fours(Floats a, Floats b, std::index_sequence<I...>) {
    return shuffle<(I / 4 * 4 + First + I % 4 / 2 + I % 2 * width)...>(a, b);
}
template <std::size_t Values, std::size_t... Row>
CELLAR_SIMD_INLINE Columns columns(const RowsOf<Values>& rows, std::size_t step, std::index_sequence<Row...>) {
    constexpr Lanes all;
    const Floats of[] = {load(rows[Row] + width * step)...};
    const Floats even[] = {zip_fours<0>(of[0], of[2], all), zip_fours<0>(of[1], of[3], all)};
    const Floats odd[] = {zip_fours<2>(of[0], of[2], all), zip_fours<2>(of[1], of[3], all)};
    return {{zip_fours<0>(even[0], even[1], all), zip_fours<2>(even[0], even[1], all),
             zip_fours<0>(odd[0], odd[1], all), zip_fours<2>(odd[0], odd[1], all)}};
}

/// Bytes in the order of a row's values: byte 4 l + k belongs to lane l of vector k.
CELLAR_SIMD_INLINE Ints joined(Ints a, Ints b, Ints c, Ints d) {
    return sum(sum(a, b << 8), sum(c << 16, d << 24));
}
template <class Code>
CELLAR_SIMD_INLINE Ints joined(const Columns& x, const Code& code) {
    return joined(code(x.of[0]), code(x.of[1]), code(x.of[2]), code(x.of[3]));
}

// 16 bytes of each row.
template <std::size_t... Row>
CELLAR_SIMD_INLINE void store_rows(const Ints* bytes, std::uint8_t* const* to, std::size_t at,
                                   std::index_sequence<Row...>) {
    four::Ints of[] = {part<Row % parts>(bytes[Row / parts])...};
    four::transpose<4>(of, Two{});
    (std::memcpy(to[Row] + at, &of[Row], sizeof(of[Row])), ...);
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

/// Of up to eight times four rows, the factors come first, so that their chains of operations overlap. Numbers that are
/// not usual, which are rare, are left to the plain loops.
inline constexpr std::size_t most_fours = 8;

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

// Plus the bits of 2^23, whose neighbours are integers.
struct AffineNumber {
    static constexpr std::uint32_t zero = 0x4b000000;

    Floats bias;
    Floats scale;
    Floats last;

    CELLAR_SIMD_INLINE Ints operator()(Floats value) const {
        return bits_of(least((value - bias) / scale, last) + broadcast(0x1p23F));
    }
};
// Four numbers, one behind the other from the lowest bit on.
template <int Bits>
CELLAR_SIMD_INLINE Ints closed(Ints bytes) {
    constexpr auto one = static_cast<std::int32_t>(low_bits(Bits, 16));
    constexpr auto two = static_cast<std::int32_t>(low_bits(2 * Bits, 32));
    const Ints pairs = (bytes & one) | (bytes >> (8 - Bits) & one << Bits);
    return (pairs & two) | (pairs >> (16 - 2 * Bits) & two << 2 * Bits);
}
template <int Bits>
CELLAR_SIMD_INLINE void store_eight_numbers(std::int32_t first, std::int32_t second, std::uint8_t* to) {
    const std::uint64_t eight = static_cast<std::uint32_t>(first) | static_cast<std::uint64_t>(second) << 4 * Bits;
    std::memcpy(to, &eight, Bits);
}
// Numbers of 8 bits, in rows of 32.
template <int Bits, std::size_t... Row, std::size_t... Step, std::size_t... Quarter>
CELLAR_SIMD_INLINE void store_numbers(Ints* numbers, PackedNumbers<Bits>* const* units, std::index_sequence<Row...> all,
                                      std::index_sequence<Step...>, std::index_sequence<Quarter...>) {
    std::uint8_t* const to[] = {units[Row]->bytes...};
    if constexpr (Bits == 8) {
        store_rows(numbers, to, 0, all);
        store_rows(numbers + sizeof...(Step) / 2, to, 16, all);
    } else {
        ((numbers[Step] = closed<Bits>(numbers[Step])), ...);
        // Eight of each row.
        four::Ints even[] = {part<2 * Quarter % parts>(numbers[2 * Quarter / parts])...};
        four::Ints odd[] = {part<(2 * Quarter + 1) % parts>(numbers[(2 * Quarter + 1) / parts])...};
        if constexpr (Bits == 4) {
            ((even[Quarter] |= odd[Quarter] << 16), ...);
            four::transpose<4>(even, Two{});
            (std::memcpy(to[Row], &even[Row], sizeof(even[Row])), ...);
        } else {
            for (std::size_t row = 0; row < 4; ++row)
                ((store_eight_numbers<Bits>(even[Quarter][row], odd[Quarter][row], to[row] + Quarter * Bits)), ...);
        }
    }
}
// Of groups of `Units` rows, in the lanes of each of them.
template <int Units>
CELLAR_SIMD_INLINE four::Floats least_of_rows(four::Floats of) {
    if constexpr (Units >= 2) of = least(of, four::shuffle<1, 0, 3, 2>(of, of));
    if constexpr (Units == 4) of = least(of, four::shuffle<2, 3, 0, 1>(of, of));
    return of;
}
template <class Format, std::size_t... Row>
CELLAR_SIMD_INLINE Factors scale_groups(const RowsOf<32>& rows, typename Format::scale* scales,
                                        std::index_sequence<Row...> all) {
    constexpr std::size_t units_per_group = Format::values_per_scale / 32;
    const FourExtremes extremes = extremes_of(rows, all);
    const auto [min, max] = ranges_of(rows, extremes, all);
    const auto grid = Format::template grid_of<four::Ints>(least_of_rows<units_per_group>(min),
                                                           -least_of_rows<units_per_group>(-max));
    typename Format::scale* const pairs[] = {scales + rows.index(Row) / units_per_group...};
    store_halves(grid.scale, &Format::scale::scale, pairs, all);
    store_halves(grid.bias, &Format::scale::bias, pairs, all);
    const four::Ints largest = extremes.magnitudes();
    const four::Ints without_bias = (grid.bias == 0) & (largest != 0); // numbers may be below 0
    return {grid.scale, grid.bias, !any(unusual(largest) | without_bias)};
}
template <class Format, std::size_t... Row, std::size_t... Step>
CELLAR_SIMD_INLINE void encode_groups(const RowsOf<32>& rows, typename Format::unit* units, const Factors& factors,
                                      std::index_sequence<Row...> all, std::index_sequence<Step...> steps) {
    constexpr int bits = Format::bits;
    const AffineNumber number{Vector::repeat(factors.other), Vector::repeat(factors.by), broadcast((1 << bits) - 1)};
    Ints numbers[] = {sum(joined(columns(rows, Step, all), number), -AffineNumber::zero)...};
    typename Format::unit* const to[] = {units + rows.index(Row)...};
    store_numbers(numbers, to, all, steps, Rows{});
}
/// Groups of a format with scales and biases, n of them.
template <class Format, class Plain>
CELLAR_SIMD_FUNCTION void encode_groups(const float* values, typename Format::unit* units,
                                        typename Format::scale* scales, std::size_t n) {
    constexpr std::size_t units_per_group = Format::values_per_scale / 32;
    constexpr std::size_t step = 4 / units_per_group;
    const auto rows_at = [&](std::size_t i) __attribute__((always_inline)) {
        const std::size_t some = n - i < step ? n - i : step;
        return RowsOf<32>{values + i * Format::values_per_scale, some * units_per_group};
    };
    Factors factors[most_fours];
    for (std::size_t begin = 0; begin < n; begin += most_fours * step) {
        const std::size_t end = n - begin < most_fours * step ? n : begin + most_fours * step;
        for (std::size_t i = begin; i < end; i += step)
            factors[(i - begin) / step] = scale_groups<Format>(rows_at(i), scales + i, Rows{});
        for (std::size_t i = begin; i < end; i += step) {
            const RowsOf<32> rows = rows_at(i);
            const Factors& own = factors[(i - begin) / step];
            encode_groups<Format>(rows, units + i * units_per_group, own, Rows{}, Steps<32>{});
            if (!own.are_usual) [[unlikely]]
                Plain::run(rows.values, units + i * units_per_group, scales + i, rows.n / units_per_group);
        }
    }
}

} // namespace cellar::detail::encoders

#endif

namespace cellar::detail {

/// Encodes n blocks, to the bits of Format::encode_unit.
template <class Format>
void encode_blocks(const float* values, typename Format::unit* units, std::size_t n) {
#ifdef CELLAR_HAS_ENCODERS
    if (simd::is_available()) return encoders::encode<Format>(values, units, n);
#endif
    EncodeBlocks<Format>::run(values, units, n);
}
/// Encodes n groups, to the bits of `Plain::run`.
template <class Format, class Plain>
void encode_groups(const float* values, typename Format::unit* units, typename Format::scale* scales, std::size_t n) {
#ifdef CELLAR_HAS_ENCODERS
    if (simd::is_available()) return encoders::encode_groups<Format, Plain>(values, units, scales, n);
#endif
    Plain::run(values, units, scales, n);
}

} // namespace cellar::detail
