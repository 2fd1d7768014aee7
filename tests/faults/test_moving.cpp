// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults that other caches had with copies, shifts, placement and defragmentation. Each test shows that cellar does not
// have the fault; comments describe the fault.
#include "../cache/numbers.hpp"
#include "../violations.hpp"

namespace test_moving {

using namespace cellar;
using numbers::feed;
using numbers::Held;
using numbers::held;
using numbers::Numbers;
using numbers::prompt;
using numbers::sees;
using numbers::Values;
using numbers::values;

namespace {

/// A cache whose cells belong to sequences 0 and 1 as `owners` says ('.': free). Each token is the number of its cell.
numbers::Cache<> pattern(const std::string& owners, Placement placement = Placement::scattered) {
    const int cells = static_cast<int>(owners.size());
    numbers::Cache<> cache{
        numbers::small,
        {.sequences = 3, .capacity = cells, .batch = 3 * cells, .placement = placement, .positions = Positions::any}};
    Numbers tokens;
    int next[3] = {};
    for (int c = 0; c < cells; ++c) {
        const char owner = owners[static_cast<std::size_t>(c)];
        const int s = owner == '.' ? 2 : owner - '0';
        tokens.push_back({s, next[s]++, static_cast<float>(c)});
    }
    feed(cache, tokens);
    REQUIRE(cache.remove(Sequence{2}, Position{0}, to_end));
    return cache;
}

} // namespace

TEST_CASE("copying a sequence onto itself changes nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{0}, Position{3}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{0}, Position{1}));
    CHECK(values(cache, 0) == Values{1, 2, 3});
}

TEST_CASE("a copied prefix replaces the target") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3, 4, 5}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    CHECK(values(cache, 1) == Values{1, 2});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2})); // again: no owner counts twice
    CHECK(cache.tokens(Sequence{1}) == 2);
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.statistics().free == cache.cells());
}

TEST_CASE("many rounds of copies and removals leak no cells") {
    numbers::Cache<> cache{numbers::small, {.sequences = 4, .capacity = 8, .batch = 8}};
    for (int round = 0; round < 100; ++round) {
        feed(cache, prompt(0, 0, Values(6)));
        for (const int s : {1, 2, 3}) REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{s}, Position{6 - s}));
        REQUIRE(cache.remove(Sequence{1}, Position{0}, Position{2}));
        feed(cache, prompt(2, 4, Values(3)));
        for (const int s : {3, 0, 1, 2}) REQUIRE(cache.remove(Sequence{s}, Position{0}, to_end));
        REQUIRE(cache.statistics().free == cache.cells());
    }
}

TEST_CASE("no pass overwrites cells that another sequence keeps") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.sequences = 3, .capacity = 40, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    for (int p = 3; p < 40; ++p) feed(cache, prompt(0, p, {100}));
    CHECK(values(cache, 1) == Values{1, 2, 3});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    for (int p = 0; p < 40; ++p) feed(cache, prompt(2, p, {200}));
    CHECK(values(cache, 1) == Values{1, 2, 3});
}

TEST_CASE("a new sequence does not see rows of a cell's previous owner") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 4, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    const Numbers tokens = prompt(1, 0, {9});
    auto pass = numbers::begin(cache, tokens);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 0) == Values{9});
}

TEST_CASE("a refused remove changes nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 4, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30, 40, 50, 60}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{6}));
    feed(cache, prompt(0, 6, {70}));
    const std::string before = numbers::portrait(cache);
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{2}).error() == Reason::full); // four copies, one free cell
    CHECK(numbers::portrait(cache) == before);
    CHECK(held(cache, 0) == Held{{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60}, {70, 70}});
    CHECK(held(cache, 1) == Held{{10, 10}, {20, 20}, {30, 30}, {40, 40}, {50, 50}, {60, 60}});

    Cache<> rigid{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1}, {.capacity = 8, .batch = 8}};
    feed(rigid, prompt(0, 0, {1, 2, 3}));
    const std::string unshifted = numbers::portrait(rigid);
    CHECK(rigid.remove(Sequence{0}, Position{0}, Position{1}).error() == Reason::cannot_shift);
    CHECK(numbers::portrait(rigid) == unshifted);
}

TEST_CASE("without a shift, a range at the end can be removed") {
    Cache<> cache{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1}, {.capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{3}));
    CHECK(cache.remove(Sequence{0}, Position{1}, Position{50}));
    CHECK(values(cache, 0) == Values{1});
}

TEST_CASE("an end of -1 is a violation") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    CHECK(violation_of([&] { static_cast<void>(cache.remove(Sequence{0}, Position{1}, Position{-1})); })
          == "remove: positions [1, -1), expected 0 <= begin <= end");
    CHECK(values(cache, 0) == Values{1, 2, 3});
}

TEST_CASE("shifting one sequence leaves the keys of others that share its cells") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30, 40}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{2}, Position{3}));
    REQUIRE(cache.remove(Sequence{1}, Position{0}, Position{2}));
    CHECK(held(cache, 0) == Held{{10, 10}, {20, 20}, {30, 30}, {40, 40}});
    CHECK(held(cache, 1) == Held{{30, 28}, {40, 38}});
    CHECK(held(cache, 2) == Held{{10, 10}, {20, 20}, {30, 30}});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1})); // 30 is shared with sequence 2, 40 is not shared
    CHECK(held(cache, 0) == Held{{20, 19}, {30, 29}, {40, 39}});
    CHECK(held(cache, 2) == Held{{10, 10}, {20, 20}, {30, 30}});
}

TEST_CASE("a whole context can be shifted at once") {
    constexpr int tokens = 5000;
    numbers::Cache<> cache{numbers::small, {.capacity = tokens, .batch = tokens}};
    Numbers all;
    for (int p = 0; p < tokens; ++p) all.push_back({0, p, static_cast<float>(p)});
    feed(cache, all);
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{tokens / 2}));
    const Held after = held(cache, 0);
    REQUIRE(after.size() == tokens / 2 + 1);
    bool right = after[0] == std::pair{0.0F, 0.0F};
    for (std::size_t i = 1; i < after.size(); ++i)
        right = right && after[i].first == static_cast<float>(tokens / 2) + static_cast<float>(i) - 1
                && after[i].second == static_cast<float>(i);
    CHECK(right);
}

TEST_CASE("a batch fits into scattered cells without a defragmentation") {
    numbers::Cache<> cache = pattern("0.0.0.0.0.0.0.0.");
    const Numbers tokens = prompt(1, 0, {31, 32, 33, 34, 35, 36, 37, 38});
    auto first = numbers::begin(cache, tokens);
    REQUIRE(first);
    numbers::put(*first, cache.shape(), tokens);
    CHECK(sees(cache, *first, 7) == Values{31, 32, 33, 34, 35, 36, 37, 38});
    first->commit();
    CHECK(values(cache, 0) == Values{0, 2, 4, 6, 8, 10, 12, 14}); // in the same cells as before
}

TEST_CASE("one defragmentation makes all free cells neighbours") {
    // The fault: the number of moves was limited, and the cache gave up after one round.
    std::string owners;
    for (int i = 0; i < 1000; ++i) owners += "0.1.";
    numbers::Cache<> cache = pattern(owners, Placement::contiguous);
    const int free = cache.statistics().free;
    auto pass = numbers::begin(cache, prompt(2, 0, Values(static_cast<std::size_t>(free))));
    REQUIRE(pass);
    CHECK(pass->cells().back() - pass->cells().front() == free - 1);
}

TEST_CASE("a defragmentation keeps all rows and their positions") {
    // The fault: neighbouring moves were joined in the wrong order, or across a hole.
    for (const std::string owners :
         {"0.00", "00.0.00", ".00", "..00", "0..00.0", "0...0000", "01.01.01", ".0.1.0.1.0", "....01", "0.0.0.0.000",
          "00.1100.11", "0.......1", "..01..10..01..", "000...111"}) {
        CAPTURE(owners);
        numbers::Cache<> cache = pattern(owners);
        const Held before[2] = {held(cache, 0), held(cache, 1)};
        cache.defragment();
        CHECK(held(cache, 0) == before[0]);
        CHECK(held(cache, 1) == before[1]);
        for (const int s : {0, 1}) // position by position
            for (int p = 0; p < cache.tokens(Sequence{s}); ++p) {
                auto pass = numbers::begin(cache, {{s, p, 0}});
                numbers::put(*pass, cache.shape(), {{s, p, 0}});
                Values seen = sees(cache, *pass, 0);
                CHECK(seen.size() == static_cast<std::size_t>(p) + 2);
            }
        CHECK(cache.statistics().fragmentation() == 0);
    }
}

TEST_CASE("after a defragmentation the history is that of the new cells") {
    numbers::Cache<SlidingWindow<3>> cache{numbers::small, {.sequences = 2, .capacity = 40, .batch = 20}};
    feed(cache, prompt(0, 0, Values(12)) + prompt(1, 0, {1, 2, 3}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    cache.defragment();
    const Numbers next = prompt(1, 3, {4});
    auto pass = numbers::begin(cache, next);
    numbers::put(*pass, cache.shape(), next);
    CHECK(pass->history() == CellRange{1, 3});
    CHECK(sees(cache, *pass, 0) == Values{2, 3, 4});
}

TEST_CASE("more sequences than bits in a word can share a cell") {
    constexpr int sequences = 300;
    numbers::Cache<> cache{numbers::small, {.sequences = sequences, .capacity = 4, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30}));
    for (int s = 1; s < sequences; ++s) REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{s}, Position{3}));
    CHECK(cache.statistics().free == 4 * sequences - 3);
    REQUIRE(cache.remove(Sequence{257}, Position{0}, Position{1}));
    CHECK(held(cache, 257) == Held{{20, 19}, {30, 29}});
    for (int s = 0; s < sequences; ++s)
        if (s != 257) REQUIRE(cache.remove(Sequence{s}, Position{1}, to_end));
    CHECK(values(cache, 0) == Values{10});
    CHECK(values(cache, 299) == Values{10});
    CHECK(cache.statistics().free == 4 * sequences - 3);
}

TEST_CASE("all memory is taken by the constructor") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 16, .batch = 8}};
    const std::int64_t bytes = cache.bytes();
    CHECK(bytes == std::int64_t{cache.cells()} * 3 * 4);
    const auto keys = [&] {
        const auto pass = cache.reserve(8);
        return pass.keys(0).data_handle();
    };
    const float* const before = keys();
    for (int p = 0; p < 32; p += 8) feed(cache, prompt(0, p, Values(8)));
    CHECK(cache.bytes() == bytes);
    CHECK(keys() == before);
}

} // namespace test_moving
