// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_rope_shift {

using cellar::Interleaved;
using cellar::Neox;
using cellar::RopeShift;

namespace {

constexpr int dim = 16;
/// The largest error of one rotation in float, as a fraction of the pair's length: a few roundings of 2^-24 each.
constexpr double tolerance = 0x1p-22;

std::vector<float> random_key(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> key(dim);
    for (float& element : key) element = normal(random);
    return key;
}

template <class Shift>
void rotate(const Shift& shift, int layer, std::vector<float>& key, std::int32_t delta) {
    const auto rotation = shift.rotation(layer);
    for (int pair = 0; pair < rotation.pairs(); ++pair)
        rotation.rotate(key[static_cast<std::size_t>(rotation.first(pair))],
                        key[static_cast<std::size_t>(rotation.second(pair))], shift.factor(layer, pair, delta));
}

/// The two elements of a pair, from the definition of the pairing.
std::pair<std::size_t, std::size_t> elements(Neox, std::size_t pair, std::size_t pairs) {
    return {pair, pair + pairs};
}
std::pair<std::size_t, std::size_t> elements(Interleaved, std::size_t pair, std::size_t) {
    return {2 * pair, 2 * pair + 1};
}

/// The rotary embedding of a key at a position, by the definition and in double.
template <class Pairing>
std::vector<double> embedded(const std::vector<float>& key, const std::vector<double>& frequencies, std::size_t begin,
                             double position) {
    std::vector<double> result(key.begin(), key.end());
    for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
        const auto [i, j] = elements(Pairing{}, pair, frequencies.size());
        const double angle = position * frequencies[pair];
        const double a = key[begin + i];
        const double b = key[begin + j];
        result[begin + i] = a * std::cos(angle) - b * std::sin(angle);
        result[begin + j] = a * std::sin(angle) + b * std::cos(angle);
    }
    return result;
}

template <class A, class B>
double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return largest;
}

double length(const std::vector<float>& key) {
    double sum = 0.0;
    for (const float element : key) sum += static_cast<double>(element) * element;
    return std::sqrt(sum);
}

struct Case {
    std::vector<double> frequencies;
    int begin;
};

/// All of a head, its first half, its last elements.
std::vector<Case> cases() {
    return {{cellar::rope_frequencies(dim), 0},
            {cellar::rope_frequencies(dim / 2), 0},
            {cellar::rope_frequencies(6, 500000.0), 10}};
}

} // namespace

static_assert(std::is_trivially_copyable_v<RopeShift<>::Rotation>);
static_assert(std::is_trivially_copyable_v<RopeShift<>::Factor>);

TEST_CASE_TEMPLATE("a rotation by d and then by -d is the identity", Pairing, Neox, Interleaved) {
    std::mt19937 random{1};
    for (const Case& c : cases()) {
        const RopeShift<Pairing> shift{c.frequencies, c.begin};
        for (const std::int32_t delta : {0, 1, -7, 1000, -131072}) {
            const auto key = random_key(random);
            auto rotated = key;
            rotate(shift, 0, rotated, delta);
            rotate(shift, 0, rotated, -delta);
            CHECK(largest_difference(rotated, key) <= 2 * tolerance * length(key));
        }
    }
}

TEST_CASE_TEMPLATE("a rotation by a and then by b equals one by a + b", Pairing, Neox, Interleaved) {
    std::mt19937 random{2};
    for (const Case& c : cases()) {
        const RopeShift<Pairing> shift{c.frequencies, c.begin};
        for (const auto& [a, b] : {std::pair{1, 1}, {-5, 3}, {4096, -4000}, {100000, 31072}}) {
            const auto key = random_key(random);
            auto twice = key;
            rotate(shift, 0, twice, a);
            rotate(shift, 0, twice, b);
            auto once = key;
            rotate(shift, 0, once, a + b);
            CHECK(largest_difference(twice, once) <= 3 * tolerance * length(key));
        }
    }
}

TEST_CASE_TEMPLATE("a key embedded at p and rotated by d equals the key embedded at p + d", Pairing, Neox,
                   Interleaved) {
    std::mt19937 random{3};
    for (const Case& c : cases()) {
        const RopeShift<Pairing> shift{c.frequencies, c.begin};
        const auto begin = static_cast<std::size_t>(c.begin);
        for (const auto& [p, d] : {std::pair{0, 5}, {17, -17}, {4095, -2048}, {131071, -131000}}) {
            const auto key = random_key(random);
            const auto at_p = embedded<Pairing>(key, c.frequencies, begin, p);
            std::vector<float> rotated(at_p.begin(), at_p.end());
            rotate(shift, 0, rotated, d);
            const auto expected = embedded<Pairing>(key, c.frequencies, begin, p + d);
            CHECK(largest_difference(rotated, expected) <= 2 * tolerance * length(key));
        }
    }
}

TEST_CASE_TEMPLATE("elements in no pair do not change", Pairing, Neox, Interleaved) {
    std::mt19937 random{4};
    const auto key = random_key(random);
    auto rotated = key;
    rotate(RopeShift<Pairing>{cellar::rope_frequencies(6), 4}, 0, rotated, 9);
    for (std::size_t i = 0; i < key.size(); ++i) CHECK((rotated[i] != key[i]) == (i >= 4 && i < 10));
}

TEST_CASE("a layer may have its own frequencies, or none") {
    const auto shift = RopeShift<>::per_layer({{1.0, 0.1}, {}, {0.5}});
    CHECK(shift.rotation(0).pairs() == 2);
    CHECK(shift.rotation(1).pairs() == 0);
    CHECK(shift.rotation(2).pairs() == 1);
    CHECK(shift.factor(2, 0, 3).cosine == doctest::Approx(std::cos(1.5)));
    CHECK(shift.factor(2, 0, 3).sine == doctest::Approx(std::sin(1.5)));
}

TEST_CASE("a pairing may be known at run time") {
    const auto elements_of = [](const auto& rotation) {
        std::vector<std::pair<int, int>> elements;
        for (int pair = 0; pair < rotation.pairs(); ++pair)
            elements.emplace_back(rotation.first(pair), rotation.second(pair));
        return elements;
    };
    using AtRunTime = RopeShift<cellar::RunTimePairing>;
    const auto frequencies = cellar::rope_frequencies(6);
    CHECK(elements_of(AtRunTime{frequencies, {.interleaved = false}}.rotation(0))
          == elements_of(RopeShift<Neox>{frequencies}.rotation(0)));
    CHECK(elements_of(AtRunTime{frequencies, {.interleaved = true}, 4}.rotation(0))
          == elements_of(RopeShift<Interleaved>{frequencies, 4}.rotation(0)));
    const auto of_layers = AtRunTime::per_layer({{1.0}, {1.0, 0.1}}, {.interleaved = true}, 2);
    CHECK(elements_of(of_layers.rotation(1)) == std::vector<std::pair<int, int>>{{2, 3}, {4, 5}});
    CHECK(of_layers.fits(2));
    CHECK(!of_layers.fits(3));
    const auto moved = of_layers.factor(1, 1, 10);
    CHECK(moved.sine == doctest::Approx(std::sin(1.0)));
    CHECK(violation_of([] {
              AtRunTime{std::vector<double>{}, {.interleaved = true}};
          })
          == "RopeShift: no frequencies, expected one for each pair");
}

TEST_CASE("one list of frequencies applies to every layer") {
    const RopeShift<> shift{{1.0, 0.1}};
    CHECK(shift.rotation(0).pairs() == 2);
    CHECK(shift.rotation(79).pairs() == 2);
    CHECK(shift.factor(79, 1, 10).sine == doctest::Approx(std::sin(1.0)));
}

TEST_CASE("invalid arguments of RopeShift are violations") {
    CHECK(violation_of([] {
              RopeShift<>{{1.0}, -1};
          })
          == "RopeShift: the first rotary element is -1, expected 0 to 268435455");
    CHECK(violation_of([] { RopeShift<>{std::vector<double>{}}; })
          == "RopeShift: no frequencies, expected one for each pair");
    CHECK(violation_of([] { RopeShift<>::per_layer({}); }) == "RopeShift: no layer, expected at least one");
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
        CHECK(violation_of([&] {
                  RopeShift<>::per_layer({{}, {1.0, bad}});
              })
              == "RopeShift: the frequency of pair 1 of layer 1 is " + std::to_string(bad) + ", expected a finite one");
    const auto shift = RopeShift<>::per_layer({{1.0}, {1.0}});
    const auto rotation_of = [&](int layer) { return violation_of([&] { shift.rotation(layer); }); };
    CHECK(rotation_of(1) == "none");
    CHECK(rotation_of(2) == "RopeShift: layer 2, expected 0 to 1, the layers it has frequencies for");
    CHECK(rotation_of(-1) == "RopeShift: layer -1, expected 0 to 1, the layers it has frequencies for");
}

} // namespace test_rope_shift
