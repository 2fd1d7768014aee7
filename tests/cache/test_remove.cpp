// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "numbers.hpp"

#include <cmath>

namespace test_remove {

using namespace cellar;
using numbers::feed;
using numbers::Held;
using numbers::held;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

template <class C>
concept takes_rotate_by = requires(C& cache) {
    cache.remove(Sequence{}, Position{}, Position{}, RotateBy{});
};

/// Adds the delta times the number of the layer.
struct AddingByLayer : numbers::Adding {
    Factor factor(int layer, int, std::int32_t delta) const { return {static_cast<float>(layer * delta)}; }
};

} // namespace

TEST_CASE("a removal at the end moves nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}) + prompt(1, 0, {5}));
    REQUIRE(cache.remove(Sequence{0}, Position{2}, to_end));
    CHECK(held(cache, 0) == Held{{1, 1}, {2, 2}});
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{0}, Position{1}});
    CHECK(cache.statistics().free == 13);
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{1000})); // the end lies beyond the sequence
    CHECK(held(cache, 0) == Held{{1, 1}});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.range(Sequence{0}) == std::nullopt);
    CHECK(values(cache, 1) == Values{5});
}

TEST_CASE("a removal in the middle moves later tokens and shifts their keys, not their values") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30, 40, 50}) + prompt(1, 0, {5, 6, 7}));
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{3}));
    CHECK(held(cache, 0) == Held{{10, 10}, {40, 38}, {50, 48}});
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{0}, Position{2}});
    CHECK(held(cache, 1) == Held{{5, 5}, {6, 6}, {7, 7}});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    CHECK(held(cache, 0) == Held{{40, 37}, {50, 47}});
    feed(cache, prompt(0, 2, {60}));
    CHECK(held(cache, 0) == Held{{40, 37}, {50, 47}, {60, 60}});
}

TEST_CASE("each layer's keys are shifted by its own number, also behind a layer that shares memory") {
    Cache<StandardV<float>, FullCausal, AddingByLayer> cache{
        CacheShape{.each_layer = {{1, 2, 1}, {1, 2, 1, 0}, {1, 2, 1}}}, {.capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    CHECK(held(cache, 0, 0) == Held{{20, 20}, {30, 30}});
    CHECK(held(cache, 0, 2) == Held{{20, 18}, {30, 28}});
}

TEST_CASE("a removal of missing positions closes the gap") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8, .positions = Positions::any}};
    feed(cache, {{0, 0, 10}, {0, 7, 20}});
    REQUIRE(cache.remove(Sequence{0}, Position{2}, Position{5}));
    CHECK(held(cache, 0) == Held{{10, 10}, {20, 17}});
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{0}, Position{4}});
}

TEST_CASE("a removal of an empty range changes nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    const std::string before = numbers::portrait(cache);
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{1}));
    CHECK(cache.remove(Sequence{0}, Position{3}, Position{9}));
    CHECK(cache.remove(Sequence{0}, Position{3}, to_end));
    CHECK(cache.remove(Sequence{0}, to_end, to_end));
    CHECK(cache.remove(Sequence{1}, Position{0}, to_end));
    CHECK(cache.remove(Sequence{1}, Position{0}, Position{5}));
    CHECK(numbers::portrait(cache) == before);
}

TEST_CASE("a shift copies shared cells first, and other sequences keep theirs") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30, 40}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{2}, Position{3}));
    feed(cache, prompt(0, 4, {50}));
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{2}));
    CHECK(held(cache, 0) == Held{{10, 10}, {30, 29}, {40, 39}, {50, 49}});
    CHECK(held(cache, 1) == Held{{10, 10}, {20, 20}, {30, 30}, {40, 40}});
    CHECK(held(cache, 2) == Held{{10, 10}, {20, 20}, {30, 30}});
    CHECK(cache.statistics().free == 24 - 7);
    CHECK(cache.statistics().shared == 3);
}

TEST_CASE("cells that a removal frees have room for its copies") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 3, .batch = 6}};
    feed(cache, prompt(0, 0, {10, 20, 30, 40}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    feed(cache, prompt(0, 4, {50, 60})); // all six cells are in use
    CHECK(cache.statistics().free == 0);

    const std::string before = numbers::portrait(cache);
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{3}).error()
          == Reason::full); // needs a copy of 40, and frees nothing
    CHECK(numbers::portrait(cache) == before);

    REQUIRE(cache.remove(Sequence{1}, Position{3}, to_end)); // 40 is no longer shared
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{3}));
    REQUIRE(cache.remove(Sequence{0}, Position{2}, Position{3})); // 50, so that one cell is free
    CHECK(held(cache, 0) == Held{{10, 10}, {40, 38}, {60, 57}});
    CHECK(held(cache, 1) == Held{{10, 10}, {20, 20}, {30, 30}});
}

TEST_CASE("a removal that frees one cell and needs one copy fits into a full cache") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 2, .batch = 4, .positions = Positions::any}};
    feed(cache, {{0, 0, 10}, {0, 2, 30}});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    feed(cache, {{0, 1, 20}, {1, 3, 40}});
    CHECK(cache.statistics().free == 0);
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{2}));
    REQUIRE(cache.remove(Sequence{1}, Position{3}, to_end)); // one free cell, for the pass that reads
    CHECK(held(cache, 0) == Held{{10, 10}, {30, 29}});
    CHECK(held(cache, 1) == Held{{10, 10}, {30, 30}});
}

TEST_CASE("DisabledShift refuses removals that would move tokens, and no others") {
    Cache<> cache{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                  {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}) + prompt(1, 0, {5}));
    const std::string before = numbers::portrait(cache);
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{2}).error() == Reason::cannot_shift);
    CHECK(cache.remove(Sequence{0}, Position{0}, Position{3}).error() == Reason::cannot_shift);
    CHECK(numbers::portrait(cache) == before);
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{1}));
    CHECK(cache.remove(Sequence{0}, Position{3}, Position{4}));
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{50}));
    CHECK(values(cache, 0) == Values{1});
}

TEST_CASE("invalid ranges are violations") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    const auto remove = [&](int s, int begin, int end) {
        return violation_of([&] { static_cast<void>(cache.remove(Sequence{s}, Position{begin}, Position{end})); });
    };
    CHECK(remove(0, 3, 2) == "remove: positions [3, 2), expected 0 <= begin <= end");
    CHECK(remove(0, -1, 2) == "remove: positions [-1, 2), expected 0 <= begin <= end");
    CHECK(remove(0, -2, to_end.value) == "remove: positions [-2, 2147483647), expected 0 <= begin <= end");
    CHECK(remove(0, 0, INT32_MIN) == "remove: positions [0, -2147483648), expected 0 <= begin <= end");
    CHECK(remove(2, 0, 1) == "sequence 2, expected 0 to 1");
}

TEST_CASE("a rotary shift gives keys as computed at their new positions") {
    const std::vector<double> frequencies{1.0, 0.25};
    const auto key_at = [&](int position) {
        const float plain[4] = {1, -2, 3, 0.5F};
        std::vector<float> key(4);
        for (std::size_t i = 0; i < 2; ++i) {
            const double angle = position * frequencies[i];
            key[i] = static_cast<float>(plain[i] * std::cos(angle) - plain[i + 2] * std::sin(angle));
            key[i + 2] = static_cast<float>(plain[i] * std::sin(angle) + plain[i + 2] * std::cos(angle));
        }
        return key;
    };
    Cache<StandardV<float>, FullCausal, RopeShift<Neox>> cache{
        CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 4, .value_dim = 1},
        {.capacity = 16, .batch = 16},
        {},
        RopeShift<Neox>{frequencies}};
    auto pass = numbers::begin(cache, prompt(0, 0, Values(10)));
    std::vector<float> k;
    for (int p = 0; p < 10; ++p)
        for (const float x : key_at(p)) k.push_back(x);
    pass->put(0, k, Values(10));
    pass->commit();
    REQUIRE(cache.remove(Sequence{0}, Position{2}, Position{7}));
    auto after = numbers::begin(cache, prompt(0, 5, {0}));
    after->put(0, Values(4), Values(1));
    const Cell cells[] = {0, 1, 7, 8, 9};
    for (int p = 0; p < 5; ++p)
        for (std::size_t d = 0; d < 4; ++d)
            CHECK(after->keys(0)(cells[p] - after->history().first, 0, d)
                  == doctest::Approx(key_at(p)[d]).epsilon(1e-5));
}

// There is no room to copy three cells.
TEST_CASE("keys without positions do not change and stay shared") {
    using Cache = cellar::Cache<StandardV<float>, FullCausal, UnrotatedShift>;
    Cache cache{numbers::small, {.sequences = 2, .capacity = 3, .batch = 6}};
    feed(cache, prompt(0, 0, {10, 20, 30, 40, 50}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{5}));
    CHECK(cache.statistics().free == 1);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{2}));
    CHECK(held(cache, 0) == Held{{30, 30}, {40, 40}, {50, 50}});
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{0}, Position{2}});
    CHECK(held(cache, 1) == Held{{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}});
    CHECK(cache.statistics().shared == 3);
    REQUIRE(cache.remove(Sequence{1}, Position{3}, Position{4}));
    CHECK(held(cache, 1) == Held{{10, 10}, {20, 20}, {30, 30}, {50, 50}});
    CHECK(held(cache, 0) == Held{{30, 30}, {40, 40}, {50, 50}});
}

TEST_CASE("RotateBy rotates keys by another number than the removed positions") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 8, .batch = 8}};
    // An image of three tokens, at 1 to 3, takes two rotary positions.
    feed(cache, prompt(0, 0, {10, 20, 30, 40, 50, 60}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{6}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{2}, Position{6}));
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{4}, RotateBy{2}));
    CHECK(held(cache, 0) == Held{{10, 10}, {50, 48}, {60, 58}});
    CHECK(cache.next(Sequence{0}) == Position{3});
    CHECK(cache.statistics().free == 24 - 8);
    // Keys that are not rotated stay shared.
    REQUIRE(cache.remove(Sequence{1}, Position{1}, Position{4}, RotateBy{0}));
    CHECK(held(cache, 1) == Held{{10, 10}, {50, 50}, {60, 60}});
    CHECK(cache.statistics().free == 24 - 8);
    CHECK(held(cache, 2) == Held{{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60}});
    CHECK(violation_of([&] { (void)cache.remove(Sequence{0}, Position{0}, Position{1}, RotateBy{-1}); })
          == "remove: rotate by -1, expected 0 or more");
    static_assert(takes_rotate_by<numbers::Cache<>>);
    static_assert(!takes_rotate_by<Cache<>>);
}

} // namespace test_remove
