// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "formats.hpp"
#include "violations.hpp"
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// Formats of several values a unit, and of two planes. tests/property compares all operations with the naive model.

namespace test_formats {

using namespace cellar;
using cellar_test::BlocksOf32;
using cellar_test::ScaledHeads;

namespace {

template <class Layout, class Shift = UnrotatedShift>
using CacheOf = Cache<Layout, FullCausal, Shift, HostBackend>;

std::vector<float> wave(std::size_t n, float by) {
    std::vector<float> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(10 * std::sin(by + static_cast<float>(i)));
    return values;
}

template <class Format>
std::vector<float> stored(std::vector<float> rows, std::size_t dim) {
    for (std::size_t i = 0; i < rows.size(); i += dim)
        cellar_test::encode_and_decode<Format>(std::span{rows}.subspan(i, dim));
    return rows;
}

/// The keys of the cells of a sequence's tokens.
template <class Cache>
std::vector<float> keys_of(Cache& cache, Sequence s) {
    auto pass = cache.begin(BatchBuilder{s, cache.next(s), 1}).value();
    std::vector<Cell> cells;
    cache.visit_cells(s, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
    });
    cells.pop_back(); // of this pass
    const LayerShape& shape = cache.shape()[0];
    std::vector<float> keys(cells.size() * static_cast<std::size_t>(shape.kv_heads * shape.key_dim));
    std::vector<float> values(cells.size() * static_cast<std::size_t>(shape.kv_heads * shape.value_dim));
    const auto keys_of_token = static_cast<std::size_t>(shape.kv_heads * shape.key_dim);
    const auto values_of_token = static_cast<std::size_t>(shape.kv_heads * shape.value_dim);
    const std::vector<float> none(std::max(keys_of_token, values_of_token));
    pass.put(0, std::span{none}.first(keys_of_token), std::span{none}.first(values_of_token));
    pass.gather(0, cells, contiguous_view(keys.data(), std::ssize(cells), shape.kv_heads, shape.key_dim),
                contiguous_view(values.data(), std::ssize(cells), shape.kv_heads, shape.value_dim));
    return keys;
}

/// A format that encodes several heads together, and one that is derived from it and encodes a head at a time.
struct Together : q8_0 {
    using encodes_several_heads = Together;
    static constexpr std::string_view name = "test_together";
    static inline std::vector<std::size_t> encoded; ///< values, call by call

    static void encode(std::span<const float> values, std::span<unit> units) {
        encoded.push_back(values.size());
        q8_0::encode(values, units);
    }
};
struct OneByOne : Together {
    static constexpr std::string_view name = "test_one_by_one";

    static void encode(std::span<const float> values, std::span<unit> units) { Together::encode(values, units); }
};

template <class Format>
std::vector<std::size_t> values_of_each_encode() {
    CacheOf<StandardV<Format, float>> cache{{.layers = 1, .kv_heads = 2, .head_dim = 64}, {.capacity = 8, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    const std::vector<float> rows = wave(3 * 2 * 64, 0);
    Together::encoded.clear();
    pass.put(0, rows, rows);
    pass.commit();
    const std::vector<std::size_t> encoded = Together::encoded;
    CHECK(keys_of(cache, Sequence{0}) == stored<q8_0>(rows, 64));
    return encoded;
}

} // namespace

TEST_CASE("bytes count all planes") {
    CHECK(CacheOf<StandardV<BlocksOf32>>{{.layers = 1, .kv_heads = 2, .head_dim = 64}, {.cells = 64}}.bytes()
          == 64 * 2 * 2 * 2 * 34);
    CHECK(CacheOf<StandardV<ScaledHeads, half>>{{.layers = 1, .kv_heads = 2, .head_dim = 64}, {.cells = 64}}.bytes()
          == 64 * 2 * (64 + 4) + 64 * 2 * 64 * 2);
    using Both = CacheOf<StandardV<ScaledHeads, BlocksOf32>>;
    CHECK(Both::bytes_for({.layers = 3, .kv_heads = 2, .head_dim = 64}, {.cells = 64}).data
          == Both{{.layers = 3, .kv_heads = 2, .head_dim = 64}, {.cells = 64}}.bytes());
}

TEST_CASE("a shape whose heads are no whole units is a violation") {
    const auto make = [](LayerShape shape) {
        return violation_of([&] {
            CacheOf<StandardV<BlocksOf32>>{CacheShape{.each_layer = {shape}}, {.capacity = 4}};
        });
    };
    CHECK(make({1, 96, 64}) == "none");
    CHECK(make({1, 32, 0}) == "none");
    CHECK(make({1, 80, 64})
          == "shape: layer 0 has a key_dim of 80, expected a multiple of 32, the values of a unit of "
             "test_blocks_of_32");
    CHECK(make({1, 64, 31})
          == "shape: layer 0 has a value_dim of 31, expected a multiple of 32, the values of a unit of "
             "test_blocks_of_32");
    CHECK(make({1, 1056, 32})
          == "shape: layer 0 has a key_dim of 1056, expected at most 1024 in the format test_blocks_of_32");
}

TEST_CASE("what is read is what was encoded, from views with gaps, too") {
    CacheOf<StandardV<BlocksOf32>> cache{{.layers = 1, .kv_heads = 2, .head_dim = 64}, {.capacity = 8, .batch = 4}};
    const std::vector<float> rows = wave(2 * 3 * 2 * 64, 0);
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    StridedView<const float, 3> every_second = contiguous_view(rows.data(), 3, 2, 64);
    for (std::int64_t& stride : every_second.strides) stride *= 2;
    pass.put(0, every_second, every_second);
    pass.commit();
    std::vector<float> given;
    for (std::size_t i = 0; i < rows.size(); i += 2) given.push_back(rows[i]);
    CHECK(keys_of(cache, Sequence{0}) == stored<BlocksOf32>(given, 64));
}

TEST_CASE("a derived format does not inherit that heads are encoded together") {
    using Sizes = std::vector<std::size_t>;
    CHECK(values_of_each_encode<Together>() == Sizes{128, 128, 128});
    CHECK(values_of_each_encode<OneByOne>() == Sizes{64, 64, 64, 64, 64, 64});
}

static_assert(detail::encodes_several_heads<q8_0> && detail::encodes_several_heads<q4_0>);
static_assert(detail::encodes_several_heads<q5_1> && detail::encodes_several_heads<iq4_nl>);
static_assert(detail::encodes_several_heads<mxfp4> && detail::encodes_several_heads<nvfp4>);
static_assert(detail::encodes_several_heads<Affine<4>> && !detail::encodes_several_heads<BlocksOf32>);

TEST_CASE("units are put and read as they are") {
    CacheOf<StandardV<BlocksOf32>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 64}, {.capacity = 8, .batch = 4}};
    std::vector<BlocksOf32::unit> units(2);
    BlocksOf32::encode(wave(64, 1), units);
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    pass.put(0, units, wave(64, 2));
    const Cell cell = pass.cells()[0];
    CHECK(pass.keys(0).extent(2) == 2);
    CHECK(pass.keys(0)(cell - pass.history().first, 0, 0) == units[0]);
    CHECK(pass.keys(0)(cell - pass.history().first, 0, 1) == units[1]);
    std::vector<BlocksOf32::unit> read(2);
    std::vector<float> values(64);
    pass.gather(0, {&cell, 1}, contiguous_view(read.data(), 1, 1, 2), contiguous_view(values.data(), 1, 1, 64));
    CHECK(read == units);
    CHECK(values == stored<BlocksOf32>(wave(64, 2), 64));
    CHECK(
        violation_of([&] {
            pass.gather(0, {&cell, 1}, contiguous_view(read.data(), 1, 1, 1), contiguous_view(values.data(), 1, 1, 64));
        })
        == "gather: the keys of layer 0 are [1, 1, 1], expected [1 cells, 1 heads, 2]");
    CHECK(
        violation_of([&] {
            pass.gather(0, {&cell, 1}, contiguous_view(read.data(), 1, 1, 2), contiguous_view(values.data(), 1, 1, 32));
        })
        == "gather: the values of layer 0 are [1, 1, 32], expected [1 cells, 1 heads, 64]");
    pass.commit();
}

TEST_CASE("views of a format with two planes have both") {
    CacheOf<StandardV<ScaledHeads>> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.capacity = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    const std::vector<float> rows{127, -127, 0, 1, 254, 2, 0, -254};
    const auto own = pass.in_place(0);
    own.keys.scales(pass.cells()[0], 0, 0) = 7;
    pass.put(0, rows, rows);
    const auto keys = pass.keys(0);
    const std::int64_t i = pass.cells()[0] - pass.history().first;
    CHECK(keys.scales(i, 0, 0) == 1);
    CHECK(keys.scales(i, 1, 0) == 2);
    CHECK(keys.units(i, 0, 1) == -127);
    CHECK(keys.units(i, 1, 1) == 1);
    CHECK(keys.scales.extent(2) == 1);
    pass.commit();
}

TEST_CASE("a shift rotates a head as a whole, over more pairs than are done at once") {
    using Layout = StandardV<ScaledHeads>;
    const auto frequencies = rope_frequencies(1024);
    CacheOf<Layout, RopeShift<Neox>> cache{
        {.layers = 1, .kv_heads = 1, .head_dim = 1024}, {.capacity = 8, .batch = 4}, {}, RopeShift<Neox>{frequencies}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    const std::vector<float> rows = wave(2 * 1024, 3);
    pass.put(0, rows, rows);
    pass.commit();
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    const std::vector<float> before = stored<ScaledHeads>({rows.begin() + 1024, rows.end()}, 1024);
    const std::vector<float> after = keys_of(cache, Sequence{0});
    double largest = 0;
    for (std::size_t pair = 0; pair < 512; ++pair) {
        const double angle = -frequencies[pair];
        const double expected = before[pair] * std::cos(angle) - before[pair + 512] * std::sin(angle);
        largest = std::max(largest, std::abs(after[pair] - expected));
    }
    CHECK(largest < 15 * ScaledHeads::rounding); // a step is 1/127 of at most 10 * sqrt(2)
}

TEST_CASE("inputs of an encoder are stored in any format") {
    EncoderMemory<StandardV<ScaledHeads, BlocksOf32>, HostBackend> memory{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                                                          {.capacity = 8, .batch = 4}};
    auto input = memory.write(Sequence{0}, Position{0}, 2).value();
    input.put(0, wave(64, 5), wave(64, 6));
    input.commit();
    auto snapshot = memory.snapshot(Sequence{0}).value();
    memory.offload(snapshot);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(memory.restore(Sequence{0}, snapshot));
    const Position position{0};
    const Sequence sequence{0};
    auto pass = memory.begin({{&position, 1}, {&sequence, 1}}).value();
    std::vector<Cell> cells;
    for (const CellRange run : pass.visible(0))
        for (std::int32_t i = 0; i < run.count; ++i) cells.push_back(run.first + i);
    std::vector<float> keys(64);
    std::vector<float> values(64);
    pass.gather(0, cells, contiguous_view(keys.data(), 2, 1, 32), contiguous_view(values.data(), 2, 1, 32));
    CHECK(keys == stored<ScaledHeads>(wave(64, 5), 32));
    CHECK(values == stored<BlocksOf32>(wave(64, 6), 32));
}

TEST_CASE("a cache that grows keeps units and scales") {
    CacheOf<StandardV<ScaledHeads, BlocksOf32>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                                      {.capacity = 512, .initial_cells = 64, .batch = 64}};
    const std::vector<float> rows = wave(64 * 32, 7);
    for (int i = 0; i < 4; ++i) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{64 * i}, 64}).value();
        pass.put(0, rows, rows);
        pass.commit();
    }
    CHECK(cache.statistics().allocated >= 256);
    const std::vector<float> keys = keys_of(cache, Sequence{0});
    CHECK(std::vector<float>(keys.begin(), keys.begin() + 64 * 32) == stored<ScaledHeads>(rows, 32));
}

} // namespace test_formats
