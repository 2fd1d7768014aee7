// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bounds.hpp"
#include "heads.hpp"
#include "violations.hpp"
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace test_rotated {

using namespace cellar;
using namespace cellar_test;

namespace {

/// By the definition: entry (i, j) of the matrix is -1 to the number of bits that i and j have in common.
template <int N>
std::vector<double> transformed(std::span<const float> head) {
    std::vector<double> values;
    for (std::size_t i = 0; i < head.size(); ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < N; ++k)
            sum += (std::popcount(i % N & k) % 2 == 0 ? 1.0 : -1.0) * head[i / N * N + k];
        values.push_back(sum / std::sqrt(double{N}));
    }
    return values;
}

double length(std::span<const float> head) {
    double sum = 0;
    for (const float x : head) sum += double{x} * x;
    return std::sqrt(sum);
}
double distance(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    return std::sqrt(sum);
}

template <int N>
void check_transform() {
    for (const Head& head : usual_heads(2 * N, 10)) {
        const std::vector<double> expected = transformed<N>(head.values);
        std::vector<float> rotated = head.values;
        Hadamard<N>::rotate(rotated);
        const double rounding = 1e-6 * length(head.values);
        for (std::size_t i = 0; i < rotated.size(); ++i) REQUIRE(std::abs(rotated[i] - expected[i]) <= rounding);
        Hadamard<N>::undo(rotated);
        REQUIRE(distance(rotated, head.values) <= 3 * rounding);
    }
}

/// A quarter turn of each two values, as a user would write a matrix.
struct QuarterTurns {
    static constexpr int values_per_rotation = 2;
    static constexpr std::string_view name = "quarter_turns";

    static void rotate(std::span<float> head) {
        for (std::size_t i = 0; i < head.size(); i += 2) {
            std::swap(head[i], head[i + 1]);
            head[i] = -head[i];
        }
    }
    static void undo(std::span<float> head) {
        for (int n = 0; n < 3; ++n) rotate(head);
    }
};

} // namespace

TEST_CASE("the Hadamard transform is that of its matrix, and its own inverse") {
    check_transform<2>();
    check_transform<16>();
    check_transform<32>();
    check_transform<64>();
    check_transform<128>();
    check_transform<1024>();
}

TEST_CASE("a rotated format stores what the format stores of rotated values") {
    for (const Head& head : usual_heads(128, 10)) {
        std::vector<float> turned = head.values;
        Hadamard<64>::rotate(turned);
        const StoredHead<Rotated<Hadamard<64>, q4_0>> stored{head.values};
        const StoredHead<q4_0> plain{turned};
        CHECK(std::memcmp(stored.units.data(), plain.units.data(), plain.units.size() * sizeof(q4_0::unit)) == 0);
        std::vector<float> back = plain.decoded();
        Hadamard<64>::undo(back);
        CHECK(same_bits(stored.decoded(), back));

        std::vector<float> quarter = head.values;
        QuarterTurns::rotate(quarter);
        const StoredHead<Rotated<QuarterTurns, int8_per_head>> bytes{head.values};
        CHECK(bytes.units == StoredHead<int8_per_head>{quarter}.units);
        CHECK(bytes.scales == StoredHead<int8_per_head>{quarter}.scales);
        CHECK(distance(bytes.decoded(), head.values) < 0.03 * length(head.values));
    }
    const StoredHead<Rotated<QuarterTurns, float>> exact{std::vector<float>{1, 2, 3, 4}};
    CHECK(exact.units == std::vector<float>{-2, 1, -4, 3});
    CHECK(exact.decoded() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("a rotated head is as wrong as the bounds of its rotated values, all together") {
    // A rotation keeps lengths. So the error of a part is as long as that of the rotated part: at most the root of the
    // sum of the squares of the bounds. And so is that of each of its values.
    const auto check = []<class Rotation, class F>(Rotation, F) {
        CAPTURE(Rotation::name);
        CAPTURE(F::name);
        constexpr std::size_t n{Rotation::values_per_rotation};
        std::vector<Head> heads = usual_heads(bounded_dim, 40);
        append(heads, edge_heads(bounded_dim));
        for (const Head& head : heads) {
            CAPTURE(head.kind);
            std::vector<float> rotated = head.values;
            Rotation::rotate(rotated);
            const std::vector<double> bounds = bounds_of<F>(rotated);
            const std::vector<float> decoded = StoredHead<Rotated<Rotation, F>>{head.values}.decoded();
            for (std::size_t i = 0; i < head.values.size(); i += n) {
                double squares = 0;
                for (std::size_t k = i; k < i + n; ++k) squares += bounds[k] * bounds[k];
                const std::span part = std::span{head.values}.subspan(i, n);
                const double of_floats = 4e-6 * length(part); // two transforms
                REQUIRE(distance(std::span{decoded}.subspan(i, n), part) <= std::sqrt(squares) + of_floats);
            }
        }
    };
    check(Hadamard<128>{}, q4_0{});
    check(Hadamard<64>{}, iq4_nl{});
    check(Hadamard<32>{}, q5_1{});
    check(Hadamard<64>{}, int8_per_head{});
    check(QuarterTurns{}, Affine<4>{});
    check(Hadamard<16>{}, fp8_e4m3{});
}

TEST_CASE("a rotation spreads an outlier, so the other values lose less") {
    std::mt19937 random{5};
    std::normal_distribution<float> normal;
    double plain = 0;
    double turned = 0;
    for (int n = 0; n < 40; ++n) {
        const Head head = make_head("an outlier", 128, [&](int i) { return i == n ? 20 : normal(random); });
        plain += distance(StoredHead<q4_0>{head.values}.decoded(), head.values);
        turned += distance(StoredHead<Rotated<Hadamard<128>, q4_0>>{head.values}.decoded(), head.values);
    }
    CHECK(turned < plain / 1.5);
}

TEST_CASE("names of rotated formats name both") {
    CHECK(Rotated<Hadamard<128>, q4_0>::name == "hadamard128.q4_0");
    CHECK(Rotated<QuarterTurns, half>::name == "quarter_turns.f16");
    CHECK(Affine<4, 32>::name == "affine4_32");
}

TEST_CASE("a head that is no multiple of what is rotated together is a violation") {
    using Turned = Cache<StandardV<Rotated<Hadamard<64>, q4_0>>, FullCausal, UnrotatedShift>;
    CHECK(violation_of([] {
              Turned{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 128}, {.capacity = 4}};
          })
          == "none");
    CHECK(violation_of([] {
              Turned{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 96}, {.capacity = 4}};
          })
          == "shape: layer 0 has a key_dim of 96, expected a multiple of 64, the values of a rotation of "
             "hadamard64.q4_0");
}

} // namespace test_rotated
