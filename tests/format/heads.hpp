// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/storage_format.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

// Heads of values for tests of formats: random ones, and those that rounding, ties and extremes make difficult.

namespace cellar_test {

struct Head {
    std::string kind;
    std::vector<float> values;
};

/// A value for each place.
template <class Value>
Head make_head(std::string kind, int dim, const Value& value) {
    Head head{std::move(kind), {}};
    for (int i = 0; i < dim; ++i) head.values.push_back(static_cast<float>(value(i)));
    return head;
}

/// Finite heads whose magnitudes are between 1e-3 and 1e4, or zero.
inline std::vector<Head> usual_heads(int dim, int random_heads) {
    std::mt19937 random{20261127};
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform{-1, 1};
    std::vector<Head> heads;
    for (int n = 0; n < random_heads; ++n) {
        const float size = std::pow(10.0F, static_cast<float>(n % 6 - 2));
        heads.push_back(make_head("normal", dim, [&](int) { return size * normal(random); }));
        heads.push_back(make_head("uniform", dim, [&](int) { return size * uniform(random); }));
        heads.push_back(make_head("beside an offset", dim, [&](int) { return 3 + 0.25F * normal(random); }));
        heads.push_back(make_head("an outlier", dim, [&](int i) { return i == n % dim ? -1e4F : normal(random); }));
        heads.push_back(make_head("few values", dim, [&](int) { return std::round(3 * normal(random)) / 2; }));
    }
    return heads;
}

/// Finite heads at the edges: zeros of both signs, ties, values that are equal, exact steps and the middles of steps.
inline std::vector<Head> edge_heads(int dim) {
    std::vector<Head> heads;
    heads.push_back(make_head("zeros", dim, [](int) { return 0.0F; }));
    heads.push_back(make_head("negative zeros", dim, [](int) { return -0.0F; }));
    heads.push_back(make_head("zeros of both signs", dim, [](int i) { return i % 3 == 0 ? -0.0F : 0.0F; }));
    heads.push_back(make_head("zero is the smallest", dim, [](int i) { return i % 2 != 0 ? -0.0 : i % 4 * 0.5; }));
    heads.push_back(make_head("zero is the largest", dim, [](int i) { return i % 2 != 0 ? 0.0 : i % 4 * -0.5; }));
    for (const float x : {1.0F, -1.0F, 0.1F, -7.3F, 1e4F, 0x1p-14F})
        heads.push_back(make_head("equal", dim, [&](int) { return x; }));
    for (const int first : {1, -1}) {
        heads.push_back(make_head("both signs of the largest", dim,
                                  [&](int i) { return i % 2 == 0 ? first * 2.5 : first * -2.5; }));
        heads.push_back(make_head("one value", dim, [&](int i) { return i % 32 == 17 ? first * 0.3 : 0.0; }));
        heads.push_back(make_head("a ramp", dim, [&](int i) { return first * (i % 32 - 9) * 0.37; }));
    }
    for (const int levels : {127, 16, 15, 31, 8, 6, 12, 63, 255, 3, 7}) {
        heads.push_back(make_head("middles of steps", dim, [&](int i) {
            return i % 32 == 0 ? -levels : i % 32 == 1 ? levels : i % (2 * levels) - levels + 0.5;
        }));
        heads.push_back(make_head("steps", dim, [&](int i) { return i % 32 == 0 ? levels : -(i % (levels + 1)); }));
        for (const float towards : {0.0F, 1.0F})
            heads.push_back(make_head("beside the middles of steps", dim, [&](int i) {
                const float middle = static_cast<float>(i % (2 * levels) - levels) + 0.5F;
                return i % 32 == 0 ? static_cast<float>(levels) : std::nextafter(middle, towards * 1e9F * middle);
            }));
    }
    heads.push_back(make_head("between the levels of iq4_nl", dim, [](int i) {
        return i % 32 == 0 ? -127 : i % 32 == 1 ? 127 : 101.01;
    }));
    heads.push_back(
        make_head("powers of two", dim, [](int i) { return std::ldexp(i % 2 == 0 ? 1 : -1, i % 20 - 12); }));
    heads.push_back(make_head("far from zero", dim, [](int i) { return 1000 + i * 0.01; }));
    return heads;
}

/// Finite heads that are too large or too small for scales in half precision.
inline std::vector<Head> extreme_heads(int dim) {
    std::vector<Head> heads;
    std::mt19937 random{7};
    std::normal_distribution<float> normal;
    for (const int exponent : {-149, -140, -126, -60, -30, -24, -17, 13, 15, 16, 20, 60, 120})
        heads.push_back(
            make_head("2^" + std::to_string(exponent), dim, [&](int) { return std::ldexp(normal(random), exponent); }));
    heads.push_back(make_head("subnormal", dim, [](int i) { return std::ldexp(i, -149); }));
    heads.push_back(
        make_head("the largest", dim, [](int i) { return (i % 2 == 0 ? 1 : -1) * std::numeric_limits<float>::max(); }));
    return heads;
}

/// Heads with an infinity or a NaN.
inline std::vector<Head> infinite_heads(int dim) {
    std::vector<Head> heads;
    std::mt19937 random{8};
    std::normal_distribution<float> normal;
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float special : {infinity, -infinity, nan, -nan, std::bit_cast<float>(0x7f800001U)})
        for (const int at : {0, 5, dim - 1})
            heads.push_back(make_head("not finite", dim, [&](int i) { return i == at ? special : normal(random); }));
    heads.push_back(make_head("NaNs", dim, [&](int) { return nan; }));
    heads.push_back(make_head("infinities", dim, [&](int i) { return i % 2 == 0 ? infinity : -infinity; }));
    return heads;
}

template <class Range>
void append(std::vector<Head>& heads, Range&& more) {
    for (Head& head : more) heads.push_back(std::move(head));
}

/// All finite ones.
inline std::vector<Head> finite_heads(int dim, int random_heads) {
    std::vector<Head> heads = usual_heads(dim, random_heads);
    append(heads, edge_heads(dim));
    append(heads, extreme_heads(dim));
    return heads;
}

/// A head as a format stores it.
template <cellar::StorageFormat Format>
struct StoredHead {
    using F = cellar::detail::format_of<Format>;
    static constexpr bool two_planes = cellar::detail::has_scale_plane<F>;

    std::vector<typename F::unit> units;
    std::vector<cellar::detail::scale_of<Format>> scales;

    explicit StoredHead(std::span<const float> values)
        : units(values.size() / F::values_per_unit),
          scales(static_cast<std::size_t>(cellar::detail::scales_in<Format>(static_cast<int>(values.size())))) {
        if constexpr (two_planes) {
            F::encode(values, std::span{units}, std::span{scales});
        } else {
            F::encode(values, std::span{units});
        }
    }

    std::vector<float> decoded() const {
        std::vector<float> values(units.size() * F::values_per_unit);
        if constexpr (two_planes) {
            F::decode(std::span{units}, std::span{scales}, std::span{values});
        } else {
            F::decode(std::span{units}, std::span{values});
        }
        return values;
    }

    bool operator==(const StoredHead& other) const {
        return std::memcmp(units.data(), other.units.data(), units.size() * sizeof(units[0])) == 0
               && (!two_planes
                   || std::memcmp(scales.data(), other.scales.data(), scales.size() * sizeof(scales[0])) == 0);
    }
};

/// Equal bits, where all NaNs are one.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
        if (!both_nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
    }
    return a.size() == b.size();
}

} // namespace cellar_test
