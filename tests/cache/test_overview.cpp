// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Defragmentation, statistics and `describe`.
#include "../violations.hpp"
#include "numbers.hpp"

#include <array>
#include <string>
#include <vector>

namespace test_overview {

using namespace cellar;
using numbers::feed;
using numbers::Held;
using numbers::held;
using numbers::prompt;
using numbers::Values;

namespace {

/// Cells: 0 of s0, 1 free, 2 of s0 and s1, 3 to 5 free, 6 and 7 of s1.
numbers::Cache<> scattered() {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 4, .batch = 8}};
    feed(cache, {{0, 0, 10}, {2, 0, 20}, {0, 1, 30}, {2, 1, 40}, {2, 2, 50}, {2, 3, 60}});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    feed(cache, {{1, 2, 70}, {1, 3, 80}});
    REQUIRE(cache.remove(Sequence{2}, Position{0}, to_end));
    REQUIRE(cache.remove(Sequence{1}, Position{0}, Position{1}));
    return cache;
}

} // namespace

TEST_CASE("statistics count cells, sequences and tokens") {
    const numbers::Cache<> cache = scattered();
    const CacheStatistics s = cache.statistics();
    CHECK(s.cells == 12);
    CHECK(s.sequences == 2);
    CHECK(s.tokens == 5);
    CHECK(s.bytes == 12 * 3 * 4);
    CHECK(s.bytes == cache.bytes());
    CHECK(s.free == 7);
    CHECK(s.shared == 0); // the shift gave sequence 1 its own copy
    CHECK(s.longest_free_run >= 3);
    CHECK(s.fragmentation() == doctest::Approx(1 - s.longest_free_run / 7.0));
}

TEST_CASE("fragmentation is 0 in an empty and a full cache, and above 0 in a scattered one") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8}};
    CHECK(cache.statistics().fragmentation() == 0);
    feed(cache, prompt(0, 0, Values(8)));
    CHECK(cache.statistics().fragmentation() == 0);
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{2}));
    REQUIRE(cache.remove(Sequence{0}, Position{4}, Position{5}));
    CHECK(cache.statistics().free == 2);
    CHECK(cache.statistics().fragmentation() == 0.5);
}

TEST_CASE("a defragmentation packs the cells and keeps all rows") {
    numbers::Cache<> cache = scattered();
    const Held first = held(cache, 0);
    const Held second = held(cache, 1);
    cache.defragment();
    CHECK(cache.statistics().fragmentation() == 0);
    CHECK(held(cache, 0) == first);
    CHECK(held(cache, 1) == second);
    CHECK(cache.statistics().longest_free_run == cache.cells() - 5);
    const std::string before = numbers::portrait(cache);
    cache.defragment(); // changes nothing
    CHECK(numbers::portrait(cache) == before);
}

TEST_CASE("the map shows who owns which cell") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 3, .capacity = 4, .batch = 8, .placement = Placement::scattered}};
    feed(cache, {{0, 0, 10}, {2, 0, 20}, {0, 1, 30}, {2, 1, 40}, {2, 2, 50}});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{1}));
    REQUIRE(cache.remove(Sequence{2}, Position{1}, Position{2}));
    CHECK(describe(cache)
          == "4 of 12 cells used, 1 shared, longest free run 7, 144 bytes in 1 layer\n"
             " 0  *20.2.......\n"
             "0  sequence 0: 2 tokens, positions 0 to 1\n"
             "1  sequence 1: 1 token, positions 0 to 0\n"
             "2  sequence 2: 2 tokens, positions 0 to 1\n");
    CHECK(describe(cache, false, 5).find("\n 0  *20.2\n 5  .....\n10  ..\n") != std::string::npos);
    CHECK(describe(cache, true).find("\033[7m*\033[0m\033[33m2\033[0m\033[31m0\033[0m\033[90m.\033[0m")
          != std::string::npos);
    CHECK(violation_of([&] { static_cast<void>(describe(cache, false, 0)); })
          == "describe: a width of 0 cells, expected at least 1");
}

TEST_CASE("the map tells cells of snapshots from free ones") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .cells = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    auto snapshot = cache.snapshot(Sequence{0}, Position{1}, Position{3});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(describe(cache).find("\n0  11+.....\n") != std::string::npos);
    CHECK(describe(cache, true).find("\033[90m+\033[0m\033[90m.\033[0m") != std::string::npos);
    std::vector<std::array<int, 3>> kept;
    cache.visit_kept_cells([&](Position p, Cell cell, int count) { kept.push_back({p.value, cell, count}); });
    CHECK(kept == std::vector<std::array<int, 3>>{{1, 1, 2}});
    cache.offload(*snapshot);
    CHECK(describe(cache).find("\n0  11......\n") != std::string::npos);
}

TEST_CASE("the numbers above the map have the singular for one cell and the plural for two layers") {
    const numbers::Cache<> cache{{.layers = 2, .kv_heads = 1, .head_dim = 2}, {.capacity = 1, .batch = 1}};
    const std::string drawn = describe(cache);
    CHECK(drawn.find("0 of 1 cell used, ") == 0);
    CHECK(drawn.find(" bytes in 2 layers\n") != std::string::npos);
}

TEST_CASE("the map draws equal rows once") {
    const numbers::Cache<> cache{numbers::small, {.capacity = 1000, .batch = 8}};
    CHECK(describe(cache, false, 10)
          == "0 of 1000 cells used, 0 shared, longest free run 1000, 12000 bytes in 1 layer\n"
             "   0  ..........\n"
             "      ...\n"
             " 990  ..........\n");
}

} // namespace test_overview
