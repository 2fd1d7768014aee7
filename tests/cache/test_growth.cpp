// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Caches that begin with memory for a few cells, and get more when they need it.
#include "../violations.hpp"
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>

#include <cstdint>
#include <set>

namespace test_growth {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

/// first, first + 1, ...
Values sequence(int first, int count) {
    Values list;
    for (int i = 0; i < count; ++i) list.push_back(static_cast<float>(first + i));
    return list;
}

/// Adds tokens to sequence 0. Returns where the keys of the first cell lie.
template <class Cache>
const float* feed_and_look(Cache& cache, const numbers::Numbers& tokens) {
    auto pass = numbers::begin(cache, tokens);
    REQUIRE(pass);
    numbers::put(*pass, cache.shape(), tokens);
    const float* const keys = &pass->keys(0)(0, 0, 0);
    pass->commit();
    return keys;
}

} // namespace

TEST_CASE_TEMPLATE("a cache begins with few cells and grows by half or more, up to its limit", Layout, StandardV<float>,
                   PermutedV<half>) {
    Cache<Layout> cache{numbers::small, {.sequences = 1, .capacity = 1000, .initial_cells = 10, .batch = 8}};
    CHECK(cache.cells() == 1000);
    CHECK(cache.statistics().allocated == 10);
    const std::int64_t row = cache.bytes() / 10;
    std::set<std::int32_t> sizes;
    for (int position = 0; position < 1000; position += 8) {
        feed(cache, prompt(0, position, sequence(position % 1000, 8)));
        const CacheStatistics now = cache.statistics();
        sizes.insert(now.allocated);
        REQUIRE(now.allocated >= now.cells - now.free);
        REQUIRE(now.bytes == row * now.allocated);
        REQUIRE(now.bytes == cache.bytes());
    }
    CHECK(sizes.size() < 14); // log(100) / log(1.5) is 11.4
    CHECK(cache.statistics().allocated == 1000);
    CHECK(values(cache, 0) == sequence(0, 1000));
    CHECK(numbers::begin(cache, prompt(0, 1000, {1})).error() == Reason::full);
    CHECK(audit(cache) == "");
}

TEST_CASE("without initial cells, all have memory from the start") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 100, .batch = 8}};
    CHECK(cache.statistics().allocated == 200);
    numbers::Cache<> small{numbers::small, {.sequences = 2, .capacity = 100, .initial_cells = 500, .batch = 8}};
    CHECK(small.statistics().allocated == 200);
}

TEST_CASE("addresses change only when a cache grows, and a reserved pass sees the cells that have memory") {
    numbers::Cache<> cache{numbers::small, {.sequences = 1, .capacity = 100, .initial_cells = 16, .batch = 8}};
    feed(cache, prompt(0, 0, sequence(0, 8)));
    const float* const before = feed_and_look(cache, prompt(0, 8, sequence(8, 8)));
    CHECK(cache.statistics().allocated == 16);
    {
        const auto reserved = cache.reserve(8);
        CHECK(reserved.keys(0).extent(0) == 16);
    }
    const float* const grown = feed_and_look(cache, prompt(0, 16, {16}));
    CHECK(grown != before);
    CHECK(cache.statistics().allocated == 24);
    for (int position = 17; position < 24; ++position)
        REQUIRE(feed_and_look(cache, prompt(0, position, {static_cast<float>(position)})) == grown);
    CHECK(values(cache, 0) == sequence(0, 24));
}

TEST_CASE("rows are written in place in the cells that have memory") {
    numbers::Cache<> cache{numbers::small, {.sequences = 1, .capacity = 100, .initial_cells = 16, .batch = 8}};
    for (const int allocated : {16, 16, 24}) {
        const int position = cache.next(Sequence{0}).value;
        auto pass = numbers::begin(cache, prompt(0, position, sequence(position, 8)));
        REQUIRE(pass);
        const auto rows = pass->in_place(0);
        CHECK(rows.keys.extent(0) == allocated);
        CHECK(rows.values.extent(0) == allocated);
        CHECK(cache.statistics().allocated == allocated);
        auto number = static_cast<float>(position);
        for (const Cell cell : pass->cells()) {
            rows.keys(cell, 0, 0) = rows.keys(cell, 0, 1) = number;
            rows.values(cell, 0, 0) = number++;
        }
        pass->mark_put(0);
        pass->commit();
    }
    CHECK(cache.cells() == 100);
    CHECK(values(cache, 0) == sequence(0, 24));
}

TEST_CASE_TEMPLATE("all rows are there after a cache has grown, also if they are more than are copied at once", Layout,
                   StandardV<float>, Blocked<float>) {
    Cache<Layout> cache{{.each_layer = {{.kv_heads = 128, .key_dim = 128, .value_dim = 1}}},
                        {.sequences = 1, .capacity = 1000, .initial_cells = 320, .batch = 320}};
    const auto keys = [&] { return cache.rows(0).keys; };
    REQUIRE(keys().extent(0) * std::int64_t{128 * 128 * sizeof(float)} > 2 * (std::int64_t{8} << 20));
    const auto pass = [&](int tokens) {
        auto opened = cache.begin(Sequence{0}, tokens).value();
        opened.mark_put(0);
        opened.commit();
    };
    pass(320);
    cache.visit_cells(Sequence{0}, [&](Position first, Cell cell, std::int32_t count) {
        for (std::int32_t i = 0; i < count; ++i) keys()(cell + i, 127, 127) = static_cast<float>(first.value + i);
    });
    pass(1);
    REQUIRE(keys().extent(0) > 320);
    cache.visit_cells(Sequence{0}, [&](Position first, Cell cell, std::int32_t count) {
        for (std::int32_t i = 0; i < count && first.value + i < 320; ++i)
            CHECK(keys()(cell + i, 127, 127) == static_cast<float>(first.value + i));
    });
}

TEST_CASE("a cache grows by multiples of its padding") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 1, .capacity = 100, .initial_cells = 5, .batch = 8, .padding = 32}};
    CHECK(cache.statistics().allocated == 32);
    feed(cache, prompt(0, 0, sequence(0, 8)));
    for (int position = 8; position < 40; position += 8) feed(cache, prompt(0, position, sequence(position, 8)));
    CHECK(cache.statistics().allocated == 64);
    CHECK(values(cache, 0) == sequence(0, 40));
}

TEST_CASE(
    "whatever needs cells makes a cache grow: restored and offloaded-in snapshots, and keys that are rotated apart") {
    const auto made = [](std::int32_t initial) {
        return numbers::Cache<>{
            numbers::small,
            {.sequences = 3, .cells = 100, .initial_cells = initial, .batch = 8, .placement = Placement::scattered}};
    };
    auto cache = made(8);
    feed(cache, prompt(0, 0, sequence(1, 8)));
    CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    CHECK(cache.statistics().allocated == 8);
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    CHECK(cache.statistics().allocated == 16);
    CHECK(values(cache, 1) == sequence(1, 8));
    REQUIRE(cache.reload(snapshot));
    CHECK(cache.statistics().allocated == 24);
    CHECK(values(cache, 0) == sequence(1, 8));
    CHECK(audit(cache) == "");
}

TEST_CASE("a cache that places tokens by blocks grows to the cells that they take, and takes low blocks first") {
    numbers::Cache<> cache{numbers::small, {.sequences = 4, .cells = 1000, .initial_cells = 8, .batch = 71}};
    feed(cache, prompt(0, 0, sequence(1, 8)));
    CHECK(cache.statistics().allocated == 8);
    feed(cache, prompt(0, 8, sequence(9, 2)));
    CHECK(cache.statistics().allocated == 12); // by half
    feed(cache, prompt(1, 0, sequence(1, 6)));
    CHECK(cache.statistics().allocated == 70);
    feed(cache, prompt(0, 10, sequence(11, 54)));
    CHECK(cache.statistics().allocated == 70);
    feed(cache, prompt(2, 0, sequence(1, 70)) + prompt(1, 6, {7})); // the last one lies lower
    CHECK(cache.statistics().allocated == 198);
    CellSnapshot snapshot = cache.snapshot(Sequence{2}).value();
    cache.offload(snapshot);
    REQUIRE(cache.restore(Sequence{3}, snapshot));
    CHECK(cache.statistics().allocated == 326);
    REQUIRE(cache.rewind(Sequence{2}, Position{10}));
    REQUIRE(cache.restore(Sequence{2}, snapshot)); // gives up its own cells before
    REQUIRE(cache.reload(snapshot));
    CHECK(cache.statistics().allocated == 489); // by half
    REQUIRE(cache.remove(Sequence{2}, Position{0}, to_end));
    feed(cache, prompt(1, 7, sequence(8, 58)));
    CHECK(cache.statistics().allocated == 489);
    CHECK(values(cache, 0) == sequence(1, 64));
    CHECK(values(cache, 1) == sequence(1, 65));
    CHECK(values(cache, 3) == sequence(1, 70));
    CHECK(audit(cache) == "");
}

TEST_CASE("a refused batch does not make a cache grow") {
    numbers::Cache<> cache{numbers::small, {.sequences = 1, .capacity = 100, .initial_cells = 8, .batch = 8}};
    feed(cache, prompt(0, 0, sequence(1, 8)));
    CHECK(numbers::begin(cache, prompt(0, 9, sequence(9, 8))).error() == Reason::not_next);
    CHECK(cache.statistics().allocated == 8);
}

TEST_CASE("fewer than no initial cells are a mistake") {
    CHECK(violation_of([] {
              numbers::Cache<>{numbers::small, {.sequences = 1, .capacity = 100, .initial_cells = -1}};
          })
          == "limits: -1 initial cells, expected 0 or more");
}

} // namespace test_growth
