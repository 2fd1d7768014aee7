// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/half.hpp>
#include <cellar/format/detail/fp4_numbers.hpp>
#include <cellar/format/detail/iq4_levels.hpp>
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

#ifdef CELLAR_HAS_X86_VECTORS

/// Encodes blocks with AVX2, in registers, to the bits of each format's `encode_unit`. Four blocks at a time, whose
/// chains of operations overlap: what each has one of is in a lane of its own. Without loops over a block's vectors,
/// because -O2 does not unroll them, and the vectors would lie in memory.
namespace cellar::detail::encoders {

using namespace simd::native;
namespace four = simd::baseline;
using Four = std::make_index_sequence<4>;
using Two = std::make_index_sequence<2>;

CELLAR_SIMD_INLINE Ints bits_of(Floats x) {
    return reinterpret_cast<Ints>(x);
}
CELLAR_SIMD_INLINE Ints magnitudes(Floats x) {
    return bits_of(x) & INT32_MAX;
}
CELLAR_SIMD_INLINE Ints integers(Floats x) {
    return __builtin_convertvector(x, Ints);
}
// Not added to anything before it is rounded.
CELLAR_SIMD_INLINE Floats product(Floats a, Floats b) {
    return Vector::in_register(a * b);
}

/// Where four blocks are. Fewer blocks end with the last one several times.
template <class Block>
struct Blocks {
    const float* values;
    Block* first;
    std::size_t last;

    CELLAR_SIMD_INLINE const float* from(std::size_t i) const { return values + (i < last ? i : last) * 32; }
    CELLAR_SIMD_INLINE Block& operator[](std::size_t i) const { return first[i < last ? i : last]; }
};

struct FourExtremes {
    four::Floats min;
    four::Floats max;
    bool are_usual; ///< all numbers are smaller than 2^40, and none is a NaN

    /// The largest magnitudes, without a sign if they are zeros.
    CELLAR_SIMD_INLINE four::Floats magnitudes() const {
        const auto largest = reinterpret_cast<four::Ints>(Vector::max(max, -min));
        return reinterpret_cast<four::Floats>(largest & INT32_MAX);
    }
};
template <std::size_t... I>
CELLAR_SIMD_INLINE Ints fold(const float* values, four::Floats& min, four::Floats& max, std::index_sequence<I...>) {
    const Floats a[] = {load(values + 16 * I)...};
    const Floats b[] = {load(values + 16 * I + 8)...};
    Floats least = Vector::min(a[0], b[0]);
    Floats most = Vector::max(a[0], b[0]);
    if constexpr (sizeof...(I) == 2) {
        least = Vector::min(least, Vector::min(a[1], b[1]));
        most = Vector::max(most, Vector::max(a[1], b[1]));
    }
    min = Vector::min(Vector::lower(least), Vector::upper(least));
    max = Vector::max(Vector::lower(most), Vector::upper(most));
    return (Vector::unordered(a[I], b[I]) | ...);
}
/// Of four runs of `Values` values, 16 or 32.
template <std::size_t Values, std::size_t... B>
CELLAR_SIMD_INLINE FourExtremes extremes_of(const float* const* runs, std::index_sequence<B...>) {
    constexpr float bound = 0x1p40F;
    four::Floats min[4];
    four::Floats max[4];
    const Ints is_nan = (fold(runs[B], min[B], max[B], std::make_index_sequence<Values / 16>{}) | ...);
    four::transpose<4>(min, Two{});
    four::transpose<4>(max, Two{});
    FourExtremes all{Vector::min(Vector::min(min[0], min[1]), Vector::min(min[2], min[3])),
                     Vector::max(Vector::max(max[0], max[1]), Vector::max(max[2], max[3])), true};
    const four::Floats largest = all.magnitudes();
    const auto is_large = reinterpret_cast<four::Floats>(largest >= bound);
    all.are_usual = Vector::signs(is_nan) == 0 && Vector::signs(is_large) == 0;
    return all;
}
template <class Block, std::size_t... B>
CELLAR_SIMD_INLINE FourExtremes extremes_of(const Blocks<Block>& blocks, std::index_sequence<B...> all) {
    const float* const runs[] = {blocks.from(B)...};
    return extremes_of<32>(runs, all);
}
// The first values of largest magnitude.
template <class Block, std::size_t... B>
CELLAR_SIMD_INLINE four::Floats first_largest(const Blocks<Block>& blocks, const FourExtremes& extremes,
                                              std::index_sequence<B...>) {
    const four::Ints are_equal = extremes.max == -extremes.min;
    if (Vector::signs(reinterpret_cast<four::Floats>(are_equal)) != 0) [[unlikely]]
        return four::Floats{detail::first_largest<32>(blocks.from(B))...};
    return extremes.max > -extremes.min ? extremes.max : extremes.min;
}

// 1 / x, and 0 where that is no finite number.
CELLAR_SIMD_INLINE four::Floats inverses_of(four::Floats x) {
    const four::Floats inverses = 1 / x;
    const auto bits = reinterpret_cast<four::Ints>(inverses);
    return reinterpret_cast<four::Floats>(bits & ((bits & INT32_MAX) < 0x7f800000));
}
template <class Block, std::size_t... B>
CELLAR_SIMD_INLINE void store_halves(four::Floats floats, half Block::*member, const Blocks<Block>& blocks,
                                     std::index_sequence<B...>) {
    const auto halves = Vector::halves_of(floats);
    ((blocks[B].*member = half::from_bits(static_cast<std::uint16_t>(halves[B]))), ...);
}

// Byte i: code i in the lower half, code 16 + i in the upper one. Codes of 4 bits.
CELLAR_SIMD_INLINE void store_nibbles(Vector::Bytes codes, std::uint8_t* to) {
    const auto low = reinterpret_cast<simd::Shorts>(Vector::lower(codes));
    const auto high = reinterpret_cast<simd::Shorts>(Vector::upper(codes));
    const simd::Shorts both = low | high << 4;
    std::memcpy(to, &both, sizeof(both));
}
// Codes of 4 bits, or of 5 if the block has room for them.
template <class Block>
CELLAR_SIMD_INLINE void store_codes(Vector::Bytes codes, Block& block) {
    if constexpr (requires { block.high; }) {
        const auto fifths = reinterpret_cast<Vector::Bytes>(reinterpret_cast<Ints>(codes) << 3);
        const std::uint32_t high = Vector::signs(fifths);
        std::memcpy(block.high, &high, sizeof(high));
        store_nibbles(codes & 15, block.low);
    } else {
        store_nibbles(codes, block.low);
    }
}

template <std::size_t... I>
CELLAR_SIMD_INLINE void store_steps(const float* values, float inverse, std::int8_t* to, std::index_sequence<I...>) {
    const Floats by = broadcast(inverse);
    const Ints rounding = bits_of(broadcast(almost_half));
    const Floats x[] = {product(load(values + 8 * I), by)...};
    const Ints steps[] = {
        (integers(x[I] + reinterpret_cast<Floats>(rounding | (bits_of(x[I]) & INT32_MIN))) & 0xff)...};
    const Vector::Bytes bytes = Vector::bytes_of(steps);
    std::memcpy(to, &bytes, sizeof(bytes));
}
template <class Block, std::size_t... B>
CELLAR_SIMD_INLINE bool encode(ByteSteps, const Blocks<Block>& blocks, std::index_sequence<B...> all) {
    const FourExtremes extremes = extremes_of(blocks, all);
    const four::Floats scales = extremes.magnitudes() / 127.0F;
    const four::Floats inverses = inverses_of(scales);
    store_halves(scales, &Block::scale, blocks, all);
    (store_steps(blocks.from(B), inverses[B], blocks[B].steps, Four{}), ...);
    return extremes.are_usual;
}

template <int Zero, class Block, std::size_t... I>
CELLAR_SIMD_INLINE void encode_signed(const float* values, float inverse, Block& block, std::index_sequence<I...>) {
    const Floats by = broadcast(inverse);
    const Floats zero = broadcast(Zero + 0.5F);
    const Ints codes[] = {integers(product(load(values + 8 * I), by) + zero)...};
    const Vector::Bytes bytes = Vector::bytes_of(codes);
    store_codes(bytes + (bytes == char{2 * Zero}), block); // which becomes 2 * Zero - 1
}
template <int Zero, class Block, std::size_t... B>
CELLAR_SIMD_INLINE bool encode(SignedSteps<Zero>, const Blocks<Block>& blocks, std::index_sequence<B...> all) {
    const FourExtremes extremes = extremes_of(blocks, all);
    const four::Floats scales = first_largest(blocks, extremes, all) / static_cast<float>(-Zero);
    const four::Floats inverses = inverses_of(scales);
    store_halves(scales, &Block::scale, blocks, all);
    (encode_signed<Zero>(blocks.from(B), inverses[B], blocks[B], Four{}), ...);
    return extremes.are_usual;
}

template <int Last, class Block, std::size_t... I>
CELLAR_SIMD_INLINE void encode_from(float minimum, const float* values, float inverse, Block& block,
                                    std::index_sequence<I...>) {
    const Floats by = broadcast(inverse);
    const Floats least = broadcast(minimum);
    const Ints codes[] = {integers(product(load(values + 8 * I) - least, by) + broadcast(0.5F))...};
    store_codes(Vector::bytes_of(codes), block);
}
template <int Last, class Block, std::size_t... B>
CELLAR_SIMD_INLINE bool encode(StepsFromMinimum<Last>, const Blocks<Block>& blocks, std::index_sequence<B...> all) {
    FourExtremes extremes = extremes_of(blocks, all);
    if (Vector::signs(reinterpret_cast<four::Floats>(extremes.min == 0)) != 0) [[unlikely]] { // of which sign?
        const Extremes signed_ones[] = {detail::extremes_of<32>(blocks.from(B))...};
        extremes.min = four::Floats{signed_ones[B].min...};
        extremes.max = four::Floats{signed_ones[B].max...};
    }
    const four::Floats scales = (extremes.max - extremes.min) / static_cast<float>(Last);
    const four::Floats inverses = inverses_of(scales);
    store_halves(scales, &Block::scale, blocks, all);
    store_halves(extremes.min, &Block::minimum, blocks, all);
    (encode_from<Last>(extremes.min[B], blocks.from(B), inverses[B], blocks[B], Four{}), ...);
    return extremes.are_usual;
}

// A step in a heap, whose root has index 1.
CELLAR_SIMD_INLINE Ints next_node(Ints node, Ints is_beyond) {
    return node + node - is_beyond;
}
// The levels that are nearest to y; of two, the higher ones.
CELLAR_SIMD_INLINE Ints nearest_levels(Floats y) {
    const Floats upper = load(iq4_search.middles);
    Ints node = 1 - (y >= broadcast(iq4_search.middles[1]));
    node = node + 1; // 2 or 3
    node = next_node(node, y >= Vector::lookup(upper, node));
    node = next_node(node, y >= Vector::lookup(upper, node));
    return next_node(node, y >= Vector::lookup(load(iq4_search.middles + 8), node)) & 15;
}
CELLAR_SIMD_INLINE Floats levels_of(Ints codes) {
    const Floats lower = Vector::lookup(load(iq4_search.levels), codes);
    const Floats upper = Vector::lookup(load(iq4_search.levels + 8), codes);
    return codes > 7 ? upper : lower;
}
// The products that `iq4_nl::least_squares` adds.
CELLAR_SIMD_INLINE void store_products(Floats x, Floats level, float* with_values, float* with_levels) {
    const Floats weighted = x * x * level;
    store(with_values, product(weighted, x));
    store(with_levels, product(weighted, level));
}
template <class Block, std::size_t... I>
CELLAR_SIMD_INLINE void encode_levels(const float* values, float inverse, Block& block, float* with_values,
                                      float* with_levels, std::index_sequence<I...>) {
    const Floats by = broadcast(inverse);
    const Floats x[] = {load(values + 8 * I)...};
    const Ints codes[] = {nearest_levels(x[I] * by)...};
    store_codes(Vector::bytes_of(codes), block);
    (store_products(x[I], levels_of(codes[I]), with_values + 8 * I, with_levels + 8 * I), ...);
}
// The sum of each row, from left to right.
template <std::size_t... Row>
CELLAR_SIMD_INLINE Floats add_in_order(const float (&rows)[8][32], std::index_sequence<Row...>) {
    Floats sums{};
    for (std::ptrdiff_t i = 0; i < 32; i += 8) {
        Floats columns[] = {load(rows[Row] + i)...};
        transpose<8>(columns, Four{});
        ((sums += columns[Row]), ...);
    }
    return sums;
}
template <class Block, std::size_t... B>
CELLAR_SIMD_INLINE bool encode(NearestLevels, const Blocks<Block>& blocks, std::index_sequence<B...> all) {
    const FourExtremes extremes = extremes_of(blocks, all);
    const four::Floats largest = first_largest(blocks, extremes, all);
    const four::Floats inverses = inverses_of(largest / static_cast<float>(iq4_levels[0]));
    float products[8][32];
    (encode_levels(blocks.from(B), inverses[B], blocks[B], products[B], products[4 + B], Four{}), ...);
    const Floats sums = add_in_order(products, std::make_index_sequence<8>{});
    ((blocks[B].scale = iq4_scale(largest[B], sums[B], sums[4 + B])), ...);
    return extremes.are_usual;
}

// A heap of the middles between numbers of 4 bits, times a scale.
CELLAR_SIMD_INLINE Floats scaled_middles(float scale) {
    return load(e2m1_middles) * broadcast(scale);
}
// Numbers of 3 bits, 8 larger.
CELLAR_SIMD_INLINE Ints nearest_numbers(Ints magnitude, Floats middles) {
    Ints node = Ints{} + 1;
    node = next_node(node, magnitude > bits_of(Vector::lookup(middles, node)));
    node = next_node(node, magnitude > bits_of(Vector::lookup(middles, node)));
    return next_node(node, magnitude > bits_of(Vector::lookup(middles, node)));
}
CELLAR_SIMD_INLINE Ints nearest_e2m1(Floats x, Floats middles) {
    return nearest_numbers(magnitudes(x), middles) ^ (bits_of(x) >> 28 & 8);
}
// Vectors 0 and 1 of the values become the lower halves of bytes, 2 and 3 the upper ones.
template <std::size_t... I>
CELLAR_SIMD_INLINE void encode_e2m1(const float* const* values, const Floats* middles, std::uint8_t* to,
                                    std::index_sequence<I...>) {
    const Ints codes[] = {nearest_e2m1(load(values[I]), middles[I])...};
    const Vector::Bytes bytes = Vector::bytes_of(codes) ^ 8;
    store_nibbles(bytes & (bytes != 8), to); // without the negative zero
}

template <class Block>
CELLAR_SIMD_INLINE void encode_e2m1(const float* values, float scale, Block& block) {
    const Floats scaled = scaled_middles(scale);
    const float* const in_order[] = {values, values + 8, values + 16, values + 24};
    const Floats middles[] = {scaled, scaled, scaled, scaled};
    encode_e2m1(in_order, middles, block.numbers, Four{});
}
template <class Block, std::size_t... B>
CELLAR_SIMD_INLINE bool encode(ScaledByPowers, const Blocks<Block>& blocks, std::index_sequence<B...> all) {
    const FourExtremes extremes = extremes_of(blocks, all);
    const four::Floats largest = extremes.magnitudes();
    ((blocks[B].scale = E8m0::quarter_of(magnitude_of(largest[B]))), ...);
    (encode_e2m1(blocks.from(B), 2 * E8m0::half_of(blocks[B].scale), blocks[B]), ...);
    return extremes.are_usual;
}

CELLAR_SIMD_INLINE Floats squared_errors(Ints magnitude, Floats middles, Floats numbers) {
    const Floats nearest = Vector::lookup(numbers, nearest_numbers(magnitude, middles));
    const Floats error = reinterpret_cast<Floats>(magnitude) - nearest;
    return product(error, error);
}
// Those of 16 values, in four sums.
CELLAR_SIMD_INLINE four::Floats errors_of(const float* values, float scale) {
    const Floats middles = scaled_middles(scale);
    const Floats numbers = load(e2m1_magnitudes.of_codes) * broadcast(scale);
    const Floats first = squared_errors(magnitudes(load(values)), middles, numbers);
    const Floats second = squared_errors(magnitudes(load(values + 8)), middles, numbers);
    return (Vector::lower(first) + Vector::upper(first)) + (Vector::lower(second) + Vector::upper(second));
}
// Of four groups, in the order of `Nvfp4::error_of`.
template <std::size_t... Group>
CELLAR_SIMD_INLINE four::Floats errors_of(const float* values, four::Floats scales, std::index_sequence<Group...>) {
    four::Floats sums[] = {errors_of(values + 16 * Group, scales[Group])...};
    four::transpose<4>(sums, Two{});
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
CELLAR_SIMD_INLINE void encode_groups(const float* values, float scale, float next_scale, std::uint8_t* to) {
    const Floats first = scaled_middles(scale);
    const Floats second = scaled_middles(next_scale);
    const float* const halves_of_groups[] = {values, values + 16, values + 8, values + 24};
    const Floats middles[] = {first, second, first, second};
    encode_e2m1(halves_of_groups, middles, to, Four{});
}
struct GroupScales {
    four::Floats factors;
    bool are_usual;
};
template <bool FourOverSix, class Block, std::size_t... Group>
CELLAR_SIMD_INLINE GroupScales store_scales(ScaledGroups<FourOverSix>, const float* values, Block& block,
                                            std::index_sequence<Group...> all) {
    using Scale = UnsignedE4m3;
    const float* const groups[] = {(values + 16 * Group)...};
    const FourExtremes extremes = extremes_of<16>(groups, all);
    const four::Floats largest = extremes.magnitudes();
    auto scales = Scale::nearest<four::Ints>(largest / 6.0F);
    auto factors = Scale::value_of<four::Floats>(scales);
    if constexpr (FourOverSix) {
        const auto others = Scale::nearest<four::Ints>(largest / 4.0F);
        const auto larger = Scale::value_of<four::Floats>(others);
        const four::Ints is_better = errors_of(values, larger, all) < errors_of(values, factors, all);
        scales = is_better ? others : scales;
        factors = is_better ? larger : factors;
    }
    ((block.scales[Group] = static_cast<std::uint8_t>(scales[Group])), ...);
    return {scales == 0 ? four::Floats{} + __builtin_inff() : factors, extremes.are_usual}; // 0: all are 0
}
CELLAR_SIMD_INLINE void store_numbers(const float* values, four::Floats factors, std::uint8_t* to) {
    encode_groups(values, factors[0], factors[1], to);
    encode_groups(values + 32, factors[2], factors[3], to + 16);
}
// Two units, whose chains of operations overlap, or one that is both.
template <bool FourOverSix, class Block>
CELLAR_SIMD_INLINE bool encode(ScaledGroups<FourOverSix> encoding, const float* values, Block& first,
                               const float* next_values, Block& second) {
    const GroupScales scales = store_scales(encoding, values, first, Four{});
    const GroupScales next_scales = store_scales(encoding, next_values, second, Four{});
    store_numbers(values, scales.factors, first.numbers);
    store_numbers(next_values, next_scales.factors, second.numbers);
    return scales.are_usual && next_scales.are_usual;
}

/// Numbers that are not usual, which are rare, are left to the plain loops.
template <class Format>
CELLAR_SIMD_FUNCTION void encode(const float* values, typename Format::unit* units, std::size_t n) {
    constexpr typename Format::encoding encoding{};
    if constexpr (Format::values_per_unit == 64) {
        for (std::size_t i = 0; i < n; i += 2) {
            const std::size_t next = i + 1 < n ? i + 1 : i;
            if (!encode(encoding, values + i * 64, units[i], values + next * 64, units[next])) [[unlikely]]
                EncodeBlocks<Format>::run(values + i * 64, units + i, next - i + 1);
        }
    } else {
        for (std::size_t i = 0; i < n; i += 4) {
            const std::size_t some = n - i < 4 ? n - i : 4;
            const Blocks<typename Format::unit> blocks{values + i * 32, units + i, some - 1};
            if (!encode(encoding, blocks, Four{})) [[unlikely]]
                EncodeBlocks<Format>::run(values + i * 32, units + i, some);
        }
    }
}

} // namespace cellar::detail::encoders

#endif

namespace cellar::detail {

/// Encodes n blocks, to the bits of Format::encode_unit.
template <class Format>
void encode_blocks(const float* values, typename Format::unit* units, std::size_t n) {
#ifdef CELLAR_HAS_X86_VECTORS
    if (simd::is_available()) return encoders::encode<Format>(values, units, n);
#endif
    EncodeBlocks<Format>::run(values, units, n);
}

} // namespace cellar::detail
