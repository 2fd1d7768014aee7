// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "formats.hpp"
#include "violations.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cache/channel_calibration.hpp>
#include <cellar/cellar.hpp>
#include <cellar/shift/rotate_on_read.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Channels that are divided by factors. tests/property compares all operations with the naive model, and tests/attention
// what attend reads.

namespace test_factors {

using namespace cellar;
using cellar_test::BlocksOf32;
using cellar_test::ScaledHeads;

namespace {

using Layout = StandardV<ScaledHeads, BlocksOf32>;
using Rotating = Cache<Layout, FullCausal, RopeShift<Neox>, HostBackend>;

constexpr LayerShape layer{2, 64, 32};
const CacheShape plain{.each_layer = {layer, {1, 64, 0}}};

/// From 1/4 to 4, equal for elements that are half a head of keys apart.
ChannelFactors some_factors(const LayerShape& shape) {
    ChannelFactors found;
    for (int i = 0; i < shape.kv_heads * shape.key_dim; ++i)
        found.keys.push_back(std::exp2(static_cast<float>(i % (shape.key_dim / 2) % 9 - 4) / 2));
    for (int i = 0; i < shape.kv_heads * shape.value_dim; ++i)
        found.values.push_back(std::exp2(static_cast<float>(i % 7 - 3) / 3));
    return found;
}
CacheShape with_factors(CacheShape shape = plain) {
    for (const LayerShape& own : shape.each_layer) shape.factors.push_back(some_factors(own));
    return shape;
}

std::vector<float> random_rows(std::mt19937& random, int tokens, int row) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(static_cast<std::size_t>(tokens * row));
    for (float& x : rows) x = normal(random);
    return rows;
}
std::vector<float> divided(std::vector<float> rows, const std::vector<float>& factors) {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] /= factors[i % factors.size()];
    return rows;
}
std::vector<float> multiplied(std::vector<float> rows, const std::vector<float>& factors) {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] *= factors[i % factors.size()];
    return rows;
}

Rotating rotating(const CacheShape& shape) {
    return {shape,
            {.sequences = 3, .capacity = 64, .batch = 48},
            {},
            RopeShift<Neox>::per_layer({rope_frequencies(64), rope_frequencies(64)})};
}

/// The values of a sequence's keys and values in one layer.
struct Read {
    std::vector<float> keys;
    std::vector<float> values;

    bool operator==(const Read&) const = default;
};
template <class Cache>
Read read(Cache& cache, Sequence s, int index) {
    const auto pass = cache.reserve(1);
    std::vector<Cell> cells;
    cache.visit_cells(s, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
    });
    const LayerShape& shape = cache.shape().each_layer[static_cast<std::size_t>(index)];
    const auto n = std::ssize(cells);
    Read found{std::vector<float>(cells.size() * static_cast<std::size_t>(shape.kv_heads * shape.key_dim)),
               std::vector<float>(cells.size() * static_cast<std::size_t>(shape.kv_heads * shape.value_dim))};
    pass.gather(index, cells, contiguous_view(found.keys.data(), n, shape.kv_heads, shape.key_dim),
                contiguous_view(found.values.data(), n, shape.kv_heads, shape.value_dim));
    return found;
}

template <class Shape>
std::string made(const Shape& shape) {
    return violation_of([&] { static_cast<void>(rotating(shape)); });
}

} // namespace

TEST_CASE("what is stored is what a cache without factors stores of divided rows, and is read multiplied") {
    Rotating with = rotating(with_factors());
    Rotating without = rotating(plain);
    std::mt19937 random{1};
    const auto feed = [&](Sequence s, int tokens) {
        const Position first = with.next(s);
        auto own = with.begin(BatchBuilder{s, first, tokens}).value();
        auto other = without.begin(BatchBuilder{s, first, tokens}).value();
        for (int i = 0; i < 2; ++i) {
            const LayerShape shape = plain[i];
            const ChannelFactors factors = some_factors(shape);
            const std::vector<float> k = random_rows(random, tokens, shape.kv_heads * shape.key_dim);
            const std::vector<float> v = random_rows(random, tokens, shape.kv_heads * shape.value_dim);
            own.put(i, k, v);
            other.put(i, divided(k, factors.keys), shape.value_dim == 0 ? v : divided(v, factors.values));
        }
        own.commit();
        other.commit();
    };
    const auto check = [&] {
        for (int s = 0; s < 3; ++s)
            for (int i = 0; i < 2; ++i) {
                const ChannelFactors factors = some_factors(plain[i]);
                Read expected = read(without, Sequence{s}, i);
                expected.keys = multiplied(std::move(expected.keys), factors.keys);
                if (!expected.values.empty()) expected.values = multiplied(std::move(expected.values), factors.values);
                CHECK(read(with, Sequence{s}, i) == expected);
            }
    };
    feed(Sequence{0}, 40);
    check();
    for (Rotating* const cache : {&with, &without}) {
        REQUIRE(cache->copy_prefix(Sequence{0}, Sequence{1}, Position{30}));
        REQUIRE(cache->remove(Sequence{1}, Position{3}, Position{9})); // rotates
        auto kept = cache->snapshot(Sequence{1}).value();
        cache->offload(kept);
        REQUIRE(cache->restore(Sequence{2}, kept));
    }
    check();
    feed(Sequence{1}, 1);
    check();
}

TEST_CASE("rows with gaps are divided, and units are put as they are") {
    Rotating cache = rotating(with_factors());
    std::mt19937 random{2};
    const std::vector<float> k = random_rows(random, 2, 2 * layer.kv_heads * layer.key_dim);
    const std::vector<float> v = random_rows(random, 2, layer.kv_heads * layer.value_dim);
    StridedView<const float, 3> every_second = contiguous_view(k.data(), 2, layer.kv_heads, layer.key_dim);
    for (std::int64_t& stride : every_second.strides) stride *= 2;
    std::vector<float> given;
    for (std::size_t i = 0; i < k.size(); i += 2) given.push_back(k[i]);
    std::vector<BlocksOf32::unit> units(4);
    BlocksOf32::encode(v, units);
    const std::vector<float> others(2 * 64);
    for (const bool are_units : {false, true}) {
        auto pass = cache.begin(BatchBuilder{Sequence{are_units ? 1 : 0}, Position{0}, 2}).value();
        if (are_units) {
            pass.put(0, every_second, units);
        } else {
            pass.put(0, every_second, v);
        }
        pass.put(1, others, std::vector<float>{});
        pass.commit();
    }
    const ChannelFactors factors = some_factors(layer);
    const auto stored = [](std::vector<float> rows, auto format, std::size_t dim) {
        for (std::size_t i = 0; i < rows.size(); i += dim)
            cellar_test::encode_and_decode<decltype(format)>(std::span{rows}.subspan(i, dim));
        return rows;
    };
    const std::vector<float> keys = multiplied(stored(divided(given, factors.keys), ScaledHeads{}, 64), factors.keys);
    const Read floats = read(cache, Sequence{0}, 0);
    CHECK(floats.keys == keys);
    CHECK(floats.values == multiplied(stored(divided(v, factors.values), BlocksOf32{}, 32), factors.values));
    const Read raw = read(cache, Sequence{1}, 0);
    CHECK(raw.keys == keys);
    CHECK(raw.values == multiplied(stored(v, BlocksOf32{}, 32), factors.values));
}

TEST_CASE("the error is that of divided values, times the factor") {
    Rotating cache = rotating(with_factors());
    std::mt19937 random{3};
    const ChannelFactors factors = some_factors(layer);
    // Channels are as different as their factors.
    const std::vector<float> k = multiplied(random_rows(random, 40, 2 * 64), factors.keys);
    const std::vector<float> v = multiplied(random_rows(random, 40, 2 * 32), factors.values);
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 40}).value();
    pass.put(0, k, v);
    pass.put(1, std::vector<float>(40 * 64), std::vector<float>{});
    pass.commit();
    const Read found = read(cache, Sequence{0}, 0);
    const auto worst = [](const std::vector<float>& rows, const std::vector<float>& stored,
                          const std::vector<float>& by, std::size_t dim) {
        double largest = 0;
        for (std::size_t head = 0; head < rows.size(); head += dim) {
            double most = 0; // of the divided head
            for (std::size_t i = head; i < head + dim; ++i)
                most = std::max(most, std::abs(double{rows[i]}) / by[i % by.size()]);
            for (std::size_t i = head; i < head + dim; ++i) {
                const double bound = by[i % by.size()] * most * (1.01 / 254 + 0x1p-11); // half a step, and its scale
                largest = std::max(largest, std::abs(double{stored[i]} - rows[i]) / bound);
            }
        }
        return largest;
    };
    CHECK(worst(k, found.keys, factors.keys, 64) < 1);
    CHECK(worst(k, found.keys, factors.keys, 64) > 0.7);
    CHECK(worst(v, found.values, factors.values, 32) < 1);
    CHECK(worst(v, found.values, factors.values, 32) > 0.7);
}

TEST_CASE("attention over keys that are rotated as they are read multiplies queries and results") {
    constexpr int tokens = 40;
    constexpr int heads = 4;
    const CacheShape one{.each_layer = {layer}};
    const ChannelFactors factors = some_factors(layer);
    std::mt19937 random{5};
    const std::vector<float> q = random_rows(random, tokens, heads * 64);
    const std::vector<float> k = random_rows(random, tokens, 2 * 64);
    const std::vector<float> v = random_rows(random, tokens, 2 * 32);
    const auto results = [&](const CacheShape& shape, const std::vector<float>& queries, const std::vector<float>& keys,
                             const std::vector<float>& values) {
        Cache<Layout, FullCausal, RotateOnRead<Neox>, HostBackend> cache{
            shape, {.capacity = 64, .batch = 48}, {}, RopeShift<Neox>{rope_frequencies(64)}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
        pass.put(0, keys, values);
        std::vector<float> out(std::size_t{tokens} * heads * 32);
        attend(pass, 0, queries, out);
        pass.commit();
        return out;
    };
    const auto of_heads = [](const std::vector<float>& list, std::size_t dim) { // two query heads for each
        std::vector<float> all;
        for (std::size_t head = 0; head < heads; ++head)
            for (std::size_t d = 0; d < dim; ++d) all.push_back(list[head / 2 * dim + d]);
        return all;
    };
    const std::vector<float> expected = multiplied(
        results(one, multiplied(q, of_heads(factors.keys, 64)), divided(k, factors.keys), divided(v, factors.values)),
        of_heads(factors.values, 32));
    CHECK(results(with_factors(one), q, k, v) == expected);
    CacheShape wrong = with_factors(one);
    wrong.factors[0].keys[3] = 3;
    CHECK(violation_of([&] { static_cast<void>(results(wrong, q, k, v)); }).find("rotated as a pair")
          != std::string::npos);
}

TEST_CASE("bytes count the factors, which the backend has too") {
    const CacheLimits limits{.sequences = 3, .capacity = 64, .batch = 48};
    const auto with = Rotating::bytes_for(with_factors(), limits);
    const auto without = Rotating::bytes_for(plain, limits);
    CHECK(with.data == without.data);
    const std::int64_t factors = 2 * 64 + 2 * 32 + 64;
    CHECK(with.bookkeeping - without.bookkeeping == 2 * std::int64_t{sizeof(ChannelFactors)} + 2 * 4 * factors);
}

TEST_CASE("factors that do not fit are violations") {
    const auto changed = [](auto change) {
        CacheShape shape = with_factors();
        change(shape.factors);
        return made(shape);
    };
    CHECK(changed([](auto&) {}) == "none");
    CHECK(changed([](auto& f) { f[0].keys.clear(); }) == "none");
    CHECK(changed([](auto& f) { f[0] = f[1] = {}; }) == "none");
    CHECK(changed([](auto& f) { f.pop_back(); }) == "shape: factors of 1 layers, expected of all 2, or of none");
    CHECK(changed([](auto& f) { f[0].keys.pop_back(); })
          == "shape: layer 0 has 127 factors of keys, expected 128, one for each head and element, or none");
    CHECK(changed([](auto& f) { f[1].values.push_back(1); })
          == "shape: layer 1 has 1 factors of values, expected 0, one for each head and element, or none");
    for (const float wrong : {0.0F, -1.0F, 0x1p-41F, 0x1p41F, std::numeric_limits<float>::quiet_NaN()})
        CHECK(changed([&](auto& f) { f[0].values[5] = wrong; })
              == "shape: layer 0 has a factor of values that is not positive, extreme or not a number, expected 2^-40 "
                 "to 2^40");
    CHECK(changed([](auto& f) { f[0].keys[64 + 3] = 3; })
          == "shape: layer 0 has different factors of elements 3 and 35 of keys, expected one for both, because they "
             "are rotated as a pair");

    const CacheShape shared{.each_layer = {layer, {2, 64, 32, 0}}, .factors = {some_factors(layer), {{5.0F}, {}}}};
    CHECK(made(shared) == "none"); // those of the layer that shares do not count
    const CacheShape one{.each_layer = {layer}, .factors = {some_factors(layer)}};
    CHECK(violation_of([&] {
              Cache<StandardV<half, ScaledHeads>, FullCausal, DisabledShift, HostBackend>{one, {.capacity = 4}};
          })
          == "shape: layer 0 has factors of keys, expected none for the format f16");
    CHECK(violation_of([&] {
              Cache<StandardV<ScaledHeads, float>, FullCausal, DisabledShift, HostBackend>{one, {.capacity = 4}};
          })
          == "shape: layer 0 has factors of values, expected none for the format f32");
    CHECK(violation_of([&] {
              Cache<StandardV<float>, FullCausal, DisabledShift, NoData>{one, {.capacity = 4}};
          })
          == "shape: layer 0 has factors, expected none with NoData, which stores nothing that could be divided");
}

TEST_CASE("calibrated factors are powers of what channels are like, and one for a pair, whatever the positions") {
    const std::vector<LayerShape> shapes{layer, {2, 64, 32, 0}, {1, 64, 0}};
    ChannelCalibration calibration{shapes};
    const RopeShift<Neox> shift{rope_frequencies(64)};
    ChannelCalibration turned{shapes};
    std::mt19937 random{4};
    const ChannelFactors sizes = some_factors(layer);
    constexpr int tokens = 2000;
    std::vector<float> k = multiplied(random_rows(random, tokens, 2 * 64), sizes.keys);
    std::vector<float> v = multiplied(random_rows(random, tokens, 2 * 32), sizes.values);
    for (std::size_t i = 0; i < v.size(); i += 32) v[i + 7] = 0; // one channel of each head
    std::vector<float> q(k.size() * 3); // three heads each, whose channels are as large as 1 / sizes^2
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < q.size(); ++i) {
        const float size = sizes.keys[i / 64 % 6 / 3 * 64 + i % 64];
        q[i] = normal(random) / (size * size);
    }
    calibration.add(0, q, k, v);
    const auto pairs = shift.rotation(0);
    for (int head = 0; head < 2 * tokens; ++head)
        for (int pair = 0; pair < pairs.pairs(); ++pair)
            pairs.rotate(k[static_cast<std::size_t>(64 * head + pairs.first(pair))],
                         k[static_cast<std::size_t>(64 * head + pairs.second(pair))],
                         shift.factor(0, pair, 1000 + head));
    turned.add(0, q, k, v); // the queries of a pair are of equal size

    constexpr CalibrationPowers equal{.keys = 1, .queries = 0, .values = 1};
    const std::vector<ChannelFactors> found = calibration.factors(equal, shift);
    REQUIRE(found.size() == 3);
    CHECK(found[0].keys.size() == 128);
    CHECK(found[1].keys.empty());
    CHECK(found[2].keys == std::vector<float>(64, 1.0F)); // no samples
    CHECK(found[2].values.empty());
    CHECK(found[0].values[7] == 1);
    CHECK(found[0].values[32 + 7] == 1);
    const float times = found[0].keys[0] / sizes.keys[0]; // of the geometric mean
    for (std::size_t i = 0; i < 128; ++i) {
        CHECK(found[0].keys[i] / sizes.keys[i] == doctest::Approx(times).epsilon(0.1));
        CHECK(found[0].keys[i] == found[0].keys[i % 64 < 32 ? i + 32 : i - 32]);
        CHECK(turned.factors(equal, shift)[0].keys[i] == doctest::Approx(found[0].keys[i]).epsilon(1e-4));
        CHECK(calibration.factors({.keys = 0.5, .queries = 0}, shift)[0].keys[i]
              == doctest::Approx(std::sqrt(found[0].keys[i])).epsilon(1e-5));
        CHECK(calibration.factors({.keys = 0, .queries = 0}, shift)[0].keys[i] == 1);
    }
    CHECK(calibration.factors(equal)[0].keys[0] != calibration.factors(equal)[0].keys[32]); // nothing rotates them
    Rotating cache = rotating({.each_layer = {layer, {1, 64, 0}}, .factors = {found[0], found[2]}});
    CHECK(cache.shape().factors[0].keys == found[0].keys);

    const auto weighed = calibration.factors({.keys = 0.5, .queries = 0.25}, shift)[0].keys;
    for (std::size_t i = 0; i < 128; ++i)
        CHECK(weighed[i] / sizes.keys[i] == doctest::Approx(weighed[0] / sizes.keys[0]).epsilon(0.1));

    CHECK(violation_of([&] { calibration.add(3, q, k, v); }) == "add: layer 3, expected 0 to 2");
    CHECK(violation_of([&] { calibration.add(1, q, k, v); })
          == "add: layer 1 shares the memory of layer 0, expected that one");
    CHECK(violation_of([&] { calibration.add(0, q, k, std::span{v}.first(5)); })
          == "add: the values of layer 0 are 5 elements, expected 128000 for [2000 tokens, 2 heads, 32]");
    CHECK(violation_of([&] { calibration.add(0, std::span{q}.first(2000 * 64), k, v); })
          == "add: the queries of layer 0 are 128000 elements, expected [2000 tokens, a multiple of 2 heads, "
             "64]");
    k[3] = std::numeric_limits<float>::infinity();
    CHECK(violation_of([&] { calibration.add(0, q, k, v); })
          == "add: the keys of layer 0 are infinite or not numbers, expected finite ones");
    CHECK(calibration.factors(equal, shift)[0].keys == found[0].keys);
}

TEST_CASE("layers that no cache has, and shifts that do not fit them, are not calibrated") {
    CHECK(violation_of([] { ChannelCalibration{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 64}.each_layer}; })
          == "calibration: no layers, expected `each_layer` as Cache::shape has it");
    CHECK(violation_of([] {
              ChannelCalibration{std::vector<LayerShape>{layer, {1, 0, 64}}};
          })
          == "shape: layer 1 has 1 heads, a key_dim of 0 and a value_dim of 64, expected at least 1, 1 and 0");
    CHECK(violation_of([] {
              ChannelCalibration{std::vector<LayerShape>{{1, 64, 64, 5}}};
          })
          == "shape: layer 0 shares layer 5, expected an earlier one, or -1");
    ChannelCalibration calibration{std::vector<LayerShape>{layer, {}}}; // a layer with a state, for example
    CHECK(violation_of([&] { calibration.add(1, {}, {}, {}); }) == "add: layer 1 has no heads, expected one with keys");
    CHECK(calibration.factors({}, RopeShift<>{rope_frequencies(64)})[1].keys.empty());
    CHECK(violation_of([&] { static_cast<void>(calibration.factors({}, RopeShift<>{rope_frequencies(66)})); })
          == "factors: layer 0 has a key_dim of 64, expected at least 66, the elements that are rotated");
}

} // namespace test_factors
