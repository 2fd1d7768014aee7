// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/half.hpp>
#include <cellar/format/detail/columns.hpp>
#include <cellar/format/detail/iq4_levels.hpp>
#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_KERNELS encoders::wide
#define CELLAR_VECTOR Avx512Vector
#define CELLAR_TARGET CELLAR_AVX512,
#include <cellar/simd/operations.hpp>
#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

/// Encodes blocks of iq4_nl with AVX-512, to the bits of its `encode_unit`: 16 at a time, each in a lane of its own. So
/// the sums over a block, whose order is a matter of the bits, are sums of vectors.
namespace cellar::detail::encoders::wide {

#define CELLAR_INLINE [[CELLAR_AVX512, gnu::always_inline]] inline

inline constexpr std::size_t values = 32; ///< of a block
inline constexpr std::size_t blocks = lanes;

CELLAR_INLINE Ints bits_of(Floats x) {
    return reinterpret_cast<Ints>(x);
}
CELLAR_INLINE Ints magnitudes_of(Ints x) {
    return x & INT32_MAX;
}
template <class V>
CELLAR_INLINE V greater(V a, V b) {
    return a > b ? a : b;
}
template <std::size_t... Part>
CELLAR_INLINE bool any(Ints of, std::index_sequence<Part...>) {
    return encoders::any((part<Part>(of) | ...));
}
template <std::size_t... Part>
CELLAR_INLINE bool any_unusual(Ints largest, std::index_sequence<Part...>) {
    return encoders::any((unusual(part<Part>(largest)) | ...));
}

/// Value i of block r is lane r of `column[i]`.
struct Columns {
    Floats column[values];
};
template <std::size_t... I>
CELLAR_INLINE void load_columns(const float* from, Floats* to, std::index_sequence<I...>) {
    Floats x[] = {Vector::load_fours(from + values * I, 4 * values)...};
    transpose_fours(x);
    ((to[I] = x[I]), ...);
}

/// As those of `FourExtremes`.
struct Extremes {
    Ints largest = Ints{} + INT32_MIN;
    Unsigned unsigned_largest{};

    template <std::size_t... I>
    CELLAR_INLINE void add(const Floats* columns, std::index_sequence<I...>) {
        ((largest = greater(largest, bits_of(columns[I]))), ...);
        ((unsigned_largest = greater(unsigned_largest, reinterpret_cast<Unsigned>(columns[I]))), ...);
    }
};
// The first values of largest magnitude. Zeros have any sign.
CELLAR_INLINE Floats first_largest(const Columns& x, const Extremes& extremes) {
    const Ints one = extremes.largest;
    const auto other = reinterpret_cast<Ints>(extremes.unsigned_largest);
    const Ints largest = greater(magnitudes_of(one), magnitudes_of(other));
    Ints first = magnitudes_of(one) == largest ? one : other;
    if (any((one ^ other) == INT32_MIN, Rows{})) [[unlikely]] // both signs have it
        for (std::size_t i = values; i-- > 0;) {
            const Ints own = bits_of(x.column[i]);
            first = magnitudes_of(own) == largest ? own : first;
        }
    return reinterpret_cast<Floats>(first);
}

/// `iq4_nearest`, as a table of words that the lowest 5 bits of an integer's run find: without the run's first integer,
/// so that the whole integer is added.
struct NearestWords {
    alignas(64) std::int16_t words[32] = {};

    constexpr NearestWords() {
        for (int run = 0; run < 16; ++run) {
            words[run] = static_cast<std::int16_t>(iq4_nearest.positive.bytes[run] - 16 * run);
            words[16 + run] = static_cast<std::int16_t>(iq4_nearest.negative.bytes[run] + 256 - 16 * run);
        }
    }
};
inline constexpr NearestWords nearest_words;

struct LevelFloats {
    alignas(64) float of_codes[16] = {};

    constexpr LevelFloats() {
        for (int code = 0; code < 16; ++code) of_codes[code] = iq4_levels[code];
    }
};
inline constexpr LevelFloats level_floats;

/// The codes of two columns, of which twice the values in levels are given: in the lower and the upper half of lanes.
CELLAR_INLINE Ints codes_of(Floats lower, Floats upper) {
    using Words = Vector::Words;
    using UnsignedWords = std::uint16_t __attribute__((vector_size(sizeof(Words))));
    const Ints both = (Vector::integers_below(lower) & 0xffff) | Vector::integers_below(upper) << 16;
    const auto twice = reinterpret_cast<Words>(both);
    Words table;
    std::memcpy(&table, nearest_words.words, sizeof(table));
    const Words sixteenfold = Vector::look_up(table, twice >> 4) + twice;
    return reinterpret_cast<Ints>(reinterpret_cast<UnsignedWords>(sixteenfold) >> 4);
}

/// The sums of `iq4_nl::least_squares`.
struct Sums {
    Floats of_values{};
    Floats of_levels{};

    /// The lowest 4 bits of lanes are codes.
    CELLAR_INLINE void add(Floats x, Ints codes) {
        Floats levels;
        std::memcpy(&levels, level_floats.of_codes, sizeof(levels));
        const Floats level = Vector::look_up(levels, codes);
        const Floats weighted = x * x * level;
        of_values += Vector::product(weighted, x);
        of_levels += Vector::product(weighted, level);
    }
};
/// The codes of four columns, in the bytes of each lane.
CELLAR_INLINE Ints encode(const Floats* x, Floats by, Sums& sums) {
    const Ints even = codes_of(x[0] * by, x[2] * by);
    const Ints odd = codes_of(x[1] * by, x[3] * by);
    sums.add(x[0], even);
    sums.add(x[1], odd);
    sums.add(x[2], even >> 16);
    sums.add(x[3], odd >> 16);
    return even | odd << 8;
}

template <std::size_t Part, class Block, std::size_t... I>
CELLAR_INLINE void store_scales(Floats largest, const Sums& sums, Block* to, std::index_sequence<I...>) {
    const auto halves = Avx2Vector::halves_of(iq4_scale<four::Floats, four::Ints>(
        part<Part>(largest), part<Part>(sums.of_values), part<Part>(sums.of_levels)));
    ((to[4 * Part + I].scale = half::from_bits(static_cast<std::uint16_t>(halves[I]))), ...);
}
template <class Block, std::size_t... Part>
CELLAR_INLINE void store_each_fourth(Ints codes, Block* to, std::index_sequence<Part...>) {
    const four::Ints of[] = {part<Part>(codes)...};
    (std::memcpy(to[4 * Part].low, &of[Part], sizeof(of[Part])), ...);
}
template <class Block, std::size_t... I>
CELLAR_INLINE void store_codes(const Ints* codes, Block* to, std::index_sequence<I...> all) {
    Ints pairs[] = {(codes[I] | codes[I + 4] << 4)...};
    transpose_fours(pairs);
    (store_each_fourth(pairs[I], to + I, all), ...);
}
template <class Block, std::size_t... Part>
CELLAR_INLINE void store_all_scales(Floats largest, const Sums& sums, Block* to, std::index_sequence<Part...> all) {
    (store_scales<Part>(largest, sums, to, all), ...);
}

/// Encodes 16 blocks, unless one of them has numbers that are not usual: then it returns false.
template <class Block>
[[CELLAR_AVX512]] bool encode(const float* from, Block* to) {
    Columns x;
    Extremes extremes;
    for (std::size_t i = 0; i < values; i += 4) {
        load_columns(from + i, x.column + i, Rows{});
        extremes.add(x.column + i, Rows{});
    }
    const Floats largest = first_largest(x, extremes);
    if (any_unusual(magnitudes_of(bits_of(largest)), Rows{})) [[unlikely]]
        return false;
    const Ints inverse = bits_of(Vector::in_register(1 / (largest / static_cast<float>(iq4_levels[0]))));
    const Floats by = 2 * reinterpret_cast<Floats>(inverse & (magnitudes_of(inverse) < 0x7f800000));
    Sums sums;
    Ints codes[values / 4];
    CELLAR_VECTOR_LOOP
    for (std::size_t i = 0; i < values / 4; ++i) codes[i] = encode(x.column + 4 * i, by, sums);
    store_codes(codes, to, Rows{});
    store_all_scales(largest, sums, to, Rows{});
    return true;
}

#undef CELLAR_INLINE

} // namespace cellar::detail::encoders::wide

#endif
