// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/half.hpp>
#include <cellar/format/detail/numbers.hpp>
#include <cellar/simd/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

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
/// What the rows of a block are multiplied by, and what comes before or after that.
struct Factors {
    four::Floats by;
    four::Floats other;
    bool are_usual;
};

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
template <std::size_t Values, std::size_t... Row>
CELLAR_SIMD_INLINE Columns columns(const RowsOf<Values>& rows, std::size_t step, std::index_sequence<Row...>) {
    Columns x{{load(rows[Row] + width * step)...}};
    transpose_fours(x.of);
    return x;
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

/// Of up to eight times four rows, the factors come first, so that their chains of operations overlap. Numbers that are
/// not usual, which are rare, are left to the plain loops.
inline constexpr std::size_t most_fours = 8;

} // namespace cellar::detail::encoders

#endif
