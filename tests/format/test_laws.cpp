// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bounds.hpp"
#include "heads.hpp"
#include "reference.hpp"
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

// What the formats promise: bounds of errors, what becomes of extremes, and that encoding again changes nothing.

namespace test_laws {

using namespace cellar;
using namespace cellar_test;
using Values = std::span<const float>;

namespace {

constexpr int dim = bounded_dim;

/// The largest error beside its bound.
template <class F>
double largest_share(const Head& head, const std::vector<float>& decoded) {
    double share = 0;
    const std::vector<double> bounds = bounds_of<F>(head.values);
    for (std::size_t i = 0; i < head.values.size(); ++i) {
        const double error = std::abs(double{decoded[i]} - head.values[i]);
        if (error != 0) share = std::max(share, error / bounds[i]);
        if (std::isnan(decoded[i])) share = INFINITY;
    }
    return share;
}

std::vector<Head> heads() {
    std::vector<Head> all = usual_heads(dim, 200);
    append(all, edge_heads(dim));
    for (Head& head : extreme_heads(dim))
        if (head.kind.find("2^-") == 0 || head.kind == "2^13" || head.kind == "subnormal")
            all.push_back(std::move(head));
    return all;
}

template <class... Formats>
struct List {};
using OfOneScale = List<q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, mxfp4, int8_per_head>;
using AffineOnes = List<Affine<2>, Affine<3>, Affine<4>, Affine<4, 32>, Affine<6, 128>, Affine<8>>;
using Others = List<nvfp4, nvfp4_four_over_six, fp8_e4m3, fp8_e5m2>;

template <class Check, class... Formats>
void for_each(List<Formats...>, const Check& check) {
    (check.template operator()<Formats>(), ...);
}
template <class Check>
void for_every_format(const Check& check) {
    for_each(OfOneScale{}, check);
    for_each(AffineOnes{}, check);
    for_each(Others{}, check);
}

/// Formats whose bits stay the same only if no sum of a scale's multiple and the minimum is rounded.
bool sums_are_exact(half scale, half minimum) {
    return std::abs(static_cast<float>(minimum)) <= 2048 * std::abs(static_cast<float>(scale));
}
template <class Unit>
bool keeps_bits(const Unit& unit) {
    if constexpr (requires { unit.minimum; }) {
        if (!sums_are_exact(unit.scale, unit.minimum)) return false;
    }
    if constexpr (std::is_same_v<decltype(unit.scale), half>) return (unit.scale.bits & 0x7fff) != 0;
    return true;
}

} // namespace

TEST_CASE("errors are within their bounds, and some come near") {
    for_every_format([]<class F>() {
        CAPTURE(F::name);
        double largest = 0;
        for (const Head& head : heads()) {
            CAPTURE(head.kind);
            const double share = largest_share<F>(head, StoredHead<F>{head.values}.decoded());
            REQUIRE(share <= 1);
            largest = std::max(largest, share);
        }
        CHECK(largest > 0.7);
    });
}

TEST_CASE("what was decoded is encoded to the same bits") {
    const auto check = []<class F>() {
        CAPTURE(F::name);
        for (const Head& head : heads()) {
            CAPTURE(head.kind);
            const StoredHead<F> once{head.values};
            const StoredHead<F> twice{once.decoded()};
            REQUIRE(same_bits(StoredHead<F>{twice.decoded()}.decoded(), twice.decoded()));
            if constexpr (requires { once.units[0].scale; }) {
                for (std::size_t i = 0; i < once.units.size(); ++i)
                    if (keeps_bits(once.units[i]))
                        REQUIRE(std::memcmp(&once.units[i], &twice.units[i], sizeof(once.units[i])) == 0);
            } else {
                REQUIRE(once == twice);
            }
        }
    };
    for_each(OfOneScale{}, check);
    for_each(List<fp8_e4m3, fp8_e5m2>{}, check);
}

TEST_CASE("a scale times 127 has that scale, for every fraction of a float, so bytes keep theirs") {
    std::uint32_t different = 0;
    for (std::uint32_t fraction = 0; fraction < 1U << 23; ++fraction) {
        const float scale = std::bit_cast<float>(0x3f800000U + fraction) / 127;
        different += 127 * scale / 127 != scale ? 1U : 0U;
    }
    CHECK(different == 0);
}

TEST_CASE("nvfp4 encodes what was decoded to the same values, where scales are normal numbers") {
    const auto check = []<class F>() {
        for (const Head& head : heads()) {
            const std::vector<float> once = StoredHead<F>{head.values}.decoded();
            const std::vector<float> twice = StoredHead<F>{once}.decoded();
            for (std::size_t i = 0; i < once.size(); i += 16)
                if (reference::largest(Values{once}.subspan(i, 16)) >= 6 * 0x1p-6F)
                    REQUIRE(same_bits(Values{once}.subspan(i, 16), Values{twice}.subspan(i, 16)));
        }
    };
    for_each(List<nvfp4, nvfp4_four_over_six>{}, check);
}

TEST_CASE("affine groups that are encoded many times stay within one more bound") {
    for_each(AffineOnes{}, []<class F>() {
        for (const Head& head : usual_heads(dim, 20)) {
            Head again = head;
            for (int n = 0; n < 20; ++n) again.values = StoredHead<F>{again.values}.decoded();
            CAPTURE(F::name);
            CAPTURE(head.kind);
            REQUIRE(largest_share<F>(head, again.values) <= 2);
        }
    });
}

TEST_CASE("a block with an infinity or a NaN decodes to no finite value, and others are not touched") {
    for_every_format([]<class F>() {
        CAPTURE(F::name);
        const std::size_t n = Bound<F>::values;
        for (const Head& head : infinite_heads(dim)) {
            const std::vector<float> decoded = StoredHead<F>{head.values}.decoded();
            for (std::size_t i = 0; i < dim; i += n) {
                const Values own = Values{head.values}.subspan(i, n);
                const bool finite = std::all_of(own.begin(), own.end(), [](float x) { return std::isfinite(x); });
                for (std::size_t k = i; k < i + n; ++k) {
                    if constexpr (Bound<F>::values == 1) {
                        REQUIRE(std::isnan(decoded[k]) == std::isnan(head.values[k])); // and infinities saturate
                    } else {
                        REQUIRE(std::isfinite(decoded[k]) == finite);
                    }
                }
            }
        }
    });
}

TEST_CASE("heads that are zeros decode to zeros") {
    for_every_format([]<class F>() {
        CAPTURE(F::name);
        for (const Head& head : edge_heads(dim))
            if (head.kind.find("zeros") != std::string::npos)
                for (const float x : StoredHead<F>{head.values}.decoded()) REQUIRE(x == 0);
    });
}

TEST_CASE("any bytes are units, which decode to something, and a unit of zeros to zeros") {
    std::mt19937 random{9};
    for_every_format([&]<class F>() {
        CAPTURE(F::name);
        for (int n = 0; n < 300; ++n) {
            StoredHead<F> stored{std::vector<float>(dim)};
            const auto overwrite = [&](auto& plane) {
                std::vector<unsigned char> bytes(plane.size() * sizeof(plane[0]));
                for (unsigned char& byte : bytes) byte = n == 0 ? 0 : static_cast<unsigned char>(random());
                if (!bytes.empty()) std::memcpy(plane.data(), bytes.data(), bytes.size());
            };
            overwrite(stored.units);
            overwrite(stored.scales);
            const std::vector<float> decoded = stored.decoded();
            const std::vector<float> again = StoredHead<F>{decoded}.decoded();
            REQUIRE(again.size() == dim);
            if (n == 0)
                for (const float x : decoded) REQUIRE(x == 0);
        }
    });
}

TEST_CASE("what attention unpacks is what is decoded") {
    for_every_format([]<class F>() {
        CAPTURE(F::name);
        if constexpr (requires { F::values_per_factor; }) {
            for (const Head& head : heads()) {
                const StoredHead<F> stored{head.values};
                const std::vector<float> decoded = stored.decoded();
                const std::size_t each = std::min(F::values_per_factor, dim);
                std::vector<typename F::code> codes(dim);
                std::vector<float> products(dim);
                const auto read = [&](const auto& factors, const auto& offsets) {
                    for (std::size_t i = 0; i < dim; ++i) {
                        products[i] = static_cast<float>(codes[i]) * static_cast<float>(factors[i / each]);
                        if (!offsets.empty()) products[i] += static_cast<float>(offsets[i / each]);
                    }
                };
                if constexpr (StoredHead<F>::two_planes) {
                    std::vector<typename F::factor> factors(dim / each);
                    std::vector<typename F::factor> offsets(dim / each);
                    F::unpack(stored.units, stored.scales, codes, factors, offsets);
                    read(factors, offsets);
                    for (std::size_t i = 0; i < dim; ++i)
                        REQUIRE(std::abs(products[i] - decoded[i])
                                <= 1e-6F * std::abs(static_cast<float>(offsets[i / each])));
                } else if constexpr (F::has_offsets) {
                    std::vector<typename F::factor> factors(dim / each);
                    std::vector<typename F::factor> offsets(dim / each);
                    F::unpack(stored.units, codes, factors, offsets);
                    read(factors, offsets);
                    REQUIRE(same_bits(products, decoded));
                } else if constexpr (requires { typename F::factor; }) {
                    std::vector<typename F::factor> factors(dim / each);
                    F::unpack(stored.units, codes, factors);
                    read(factors, std::vector<float>{});
                    REQUIRE(same_bits(products, decoded));
                } else {
                    std::vector<float> factors(1);
                    F::unpack(stored.units, codes, factors);
                    read(factors, std::vector<float>{});
                    REQUIRE(same_bits(products, decoded));
                }
            }
        }
    });
}

} // namespace test_laws
