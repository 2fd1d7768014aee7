// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/format/detail/codes.hpp>
#include <cellar/format/detail/columns.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#ifdef CELLAR_HAS_ENCODERS

/// Encodes groups with scales and biases, four rows of 32 values at a time.
namespace cellar::detail::encoders {

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

/// Encodes n groups, to the bits of `Plain::run`.
template <class Format, class Plain>
void encode_groups(const float* values, typename Format::unit* units, typename Format::scale* scales, std::size_t n) {
#ifdef CELLAR_HAS_ENCODERS
    if (simd::is_available()) return encoders::encode_groups<Format, Plain>(values, units, scales, n);
#endif
    Plain::run(values, units, scales, n);
}

} // namespace cellar::detail
