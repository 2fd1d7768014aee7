// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "reference.hpp"
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

// What the errors of formats are bounded by, as their headers say: half of the widest gap between neighbouring numbers,
// and what the rounding of scales adds.

namespace cellar_test {

/// Values of a head, where one scale serves them all.
inline constexpr int bounded_dim = 128;

/// What the values of a block have to do with errors.
struct Block {
    double largest; ///< magnitude
    double range;   ///< from the smallest to the largest value
};
inline Block block_of(std::span<const float> values) {
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    return {reference::largest(values), double{*max} - *min};
}

/// What the rounding of scales and minima to half adds, for codes up to `last`.
inline double of_half(double product, double minimum, int last) {
    return (product + minimum) * 0x1p-11 + last * 0x1p-25 + minimum * 0x1p-20;
}

/// The values that share a scale, and the bound of the error of one of them.
template <class F>
struct Bound;
/// Of blocks of 32 with a scale of half; codes go up to `Last`.
template <int Divisor, int Last>
struct OfLargest {
    static constexpr std::size_t values = 32;
    static double of(const Block& b, double) { return b.largest / Divisor + of_half(b.largest, 0, Last); }
};
/// With a minimum, too.
template <int Last>
struct OfRange {
    static constexpr std::size_t values = 32;
    static double of(const Block& b, double) { return b.range / (2 * Last) + of_half(b.range, b.largest, Last); }
};
template <>
struct Bound<cellar::q8_0> : OfLargest<254, 127> {};
template <>
struct Bound<cellar::q4_0> : OfLargest<8, 8> {};
template <>
struct Bound<cellar::q5_0> : OfLargest<16, 16> {};
template <>
struct Bound<cellar::q4_1> : OfRange<15> {};
template <>
struct Bound<cellar::q5_1> : OfRange<31> {};
template <>
struct Bound<cellar::iq4_nl> {
    static constexpr std::size_t values = 32;
    static double of(const Block& b, double) { return 0.21 * b.largest + of_half(b.largest, 0, 127); }
};
template <>
struct Bound<cellar::mxfp4> {
    static constexpr std::size_t values = 32;
    static double of(const Block& b, double) { return b.largest / 4 + 0x1p-127; }
};
template <>
struct Bound<cellar::nvfp4> {
    static constexpr std::size_t values = 16;
    static double of(const Block& b, double) { return std::max(0.18 * b.largest + 6 * 0x1p-10, b.largest - 2688); }
};
template <>
struct Bound<cellar::nvfp4_four_over_six> : Bound<cellar::nvfp4> {};
template <>
struct Bound<cellar::int8_per_head> {
    static constexpr std::size_t values = bounded_dim;
    static double of(const Block& b, double) { return b.largest / 253 + 0x1p-119; }
};
template <>
struct Bound<cellar::fp8_e4m3> {
    static constexpr std::size_t values = 1;
    static double of(const Block&, double x) { return std::max({std::abs(x) / 16, 0x1p-10, std::abs(x) - 448}); }
};
template <>
struct Bound<cellar::fp8_e5m2> {
    static constexpr std::size_t values = 1;
    static double of(const Block&, double x) { return std::max({std::abs(x) / 8, 0x1p-17, std::abs(x) - 57344}); }
};
template <int Bits, int Group>
struct Bound<cellar::Affine<Bits, Group>> {
    static constexpr std::size_t values = Group;
    static double of(const Block& b, double) {
        constexpr int last = (1 << Bits) - 1;
        return b.range / last + of_half(1.5 * b.range, b.largest, last);
    }
};

/// Of each value of a head.
template <class F>
std::vector<double> bounds_of(std::span<const float> head) {
    constexpr std::size_t n = Bound<F>::values;
    std::vector<double> bounds;
    for (std::size_t i = 0; i < head.size(); ++i)
        bounds.push_back(Bound<F>::of(block_of(head.subspan(i / n * n, n)), head[i]));
    return bounds;
}

} // namespace cellar_test
