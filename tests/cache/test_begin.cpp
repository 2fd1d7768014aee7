// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "numbers.hpp"

using namespace cellar;
using numbers::feed;
using numbers::Numbers;
using numbers::prompt;
using numbers::sees;
using numbers::Values;

namespace {

std::vector<Cell> cells_of(const std::span<const Cell> cells) {
    return {cells.begin(), cells.end()};
}

std::string violation_of_begin(numbers::Cache<>& cache, const Numbers& tokens) {
    return violation_of([&] { static_cast<void>(numbers::begin(cache, tokens)); });
}

} // namespace

TEST_CASE("a token sees its sequence up to itself and no other sequence") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    const Numbers tokens = prompt(0, 0, {1, 2, 3}) + prompt(1, 0, {4, 5});
    auto pass = numbers::begin(cache, tokens);
    REQUIRE(pass);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 0) == Values{1});
    CHECK(sees(cache, *pass, 2) == Values{1, 2, 3});
    CHECK(sees(cache, *pass, 3) == Values{4});
    CHECK(sees(cache, *pass, 4) == Values{4, 5});
}

TEST_CASE("tokens of one pass may come in any order") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8, .positions = Positions::any}};
    const Numbers tokens{{0, 2, 3}, {1, 1, 5}, {0, 0, 1}, {1, 0, 4}, {0, 1, 2}};
    auto pass = numbers::begin(cache, tokens);
    REQUIRE(pass);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 0) == Values{1, 2, 3});
    CHECK(sees(cache, *pass, 1) == Values{4, 5});
    CHECK(sees(cache, *pass, 2) == Values{1});
    CHECK(sees(cache, *pass, 4) == Values{1, 2});
    pass->commit();
    CHECK(numbers::values(cache, 0) == Values{1, 2, 3});
}

TEST_CASE("tokens at equal positions see each other") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8, .positions = Positions::any}};
    feed(cache, {{0, 0, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 2, 5}});
    CHECK(cache.tokens({0}) == 5);
    const Numbers more{{0, 1, 6}, {0, 2, 7}};
    auto pass = numbers::begin(cache, more);
    numbers::put(*pass, cache.shape(), more);
    CHECK(sees(cache, *pass, 0) == Values{1, 2, 3, 4, 6});
    CHECK(sees(cache, *pass, 1) == Values{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("the tokens of a group see one another and no later group") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 9, .batch = 9}};
    // Text, an image of three tokens, text, an image of two tokens, and another sequence.
    const Numbers tokens{{0, 0, 1},    {0, 1, 2, 5}, {0, 2, 3, 5}, {0, 3, 4, 5}, {0, 4, 5},
                         {0, 5, 6, 0}, {0, 6, 7, 0}, {1, 0, 8},    {1, 1, 9}};
    auto pass = numbers::begin(cache, tokens);
    REQUIRE(pass);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 0) == Values{1});
    for (const int query : {1, 2, 3}) CHECK(sees(cache, *pass, query) == Values{1, 2, 3, 4});
    CHECK(sees(cache, *pass, 4) == Values{1, 2, 3, 4, 5});
    for (const int query : {5, 6}) CHECK(sees(cache, *pass, query) == Values{1, 2, 3, 4, 5, 6, 7});
    CHECK(sees(cache, *pass, 7) == Values{8});
    CHECK(sees(cache, *pass, 8) == Values{8, 9});
    pass->commit();
    const Numbers more{{0, 7, 10}};
    auto next = numbers::begin(cache, more);
    numbers::put(*next, cache.shape(), more);
    CHECK(sees(cache, *next, 0) == Values{1, 2, 3, 4, 5, 6, 7, 10});
}

TEST_CASE("a group does not extend the window backwards") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.capacity = 20, .batch = 8}};
    const Numbers tokens{{0, 0, 1}, {0, 1, 2}, {0, 2, 3, 1}, {0, 3, 4, 1}, {0, 4, 5}};
    auto pass = numbers::begin(cache, tokens);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 2) == Values{2, 3, 4});
    CHECK(sees(cache, *pass, 3) == Values{3, 4});
}

TEST_CASE("a batch gets the lowest run of cells, else the lowest cells") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 4, .batch = 6}};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3}) + prompt(2, 0, {4, 5, 6}));
    REQUIRE(cache.remove({0}, {0}, to_end));
    REQUIRE(cache.remove({2}, {0}, {2}));
    // Cells 2 and 5 are in use; 0 and 1, 3 and 4, and 6 to 11 are free.
    CHECK(cells_of(numbers::begin(cache, prompt(0, 0, {7, 8})).value().cells()) == std::vector<Cell>{0, 1});
    CHECK(cells_of(numbers::begin(cache, prompt(0, 0, {7, 8, 9})).value().cells()) == std::vector<Cell>{6, 7, 8});
    feed(cache, prompt(0, 0, {7, 8, 9, 10}));
    CHECK(cells_of(numbers::begin(cache, prompt(1, 1, {1, 2, 3, 4, 5})).value().cells())
          == std::vector<Cell>{0, 1, 3, 4, 10});
}

TEST_CASE("contiguous placement defragments only if no run is long enough") {
    const CacheLimits limits{.sequences = 3, .capacity = 4, .batch = 6, .placement = Placement::contiguous};
    numbers::Cache<> cache{numbers::small, limits};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3}) + prompt(2, 0, {4, 5, 6}));
    REQUIRE(cache.remove({0}, {0}, to_end));
    CHECK(cells_of(numbers::begin(cache, prompt(0, 0, {7, 8, 9})).value().cells()) == std::vector<Cell>{6, 7, 8});
    feed(cache, prompt(0, 0, {7, 8, 9}));
    const std::string before = describe(cache);
    CHECK(numbers::begin(cache, prompt(1, 1, {1, 2, 3, 4, 5, 6})).error() == Reason::full);
    CHECK(numbers::begin(cache, prompt(1, 1, {1, 2, 3, 4, 5, 6, 7})).error() == Reason::batch_too_long);
    CHECK(describe(cache) == before);
    CHECK(cells_of(numbers::begin(cache, prompt(1, 1, {1, 2, 3, 4, 5})).value().cells())
          == std::vector<Cell>{7, 8, 9, 10, 11});
    CHECK(numbers::values(cache, 0) == Values{7, 8, 9});
    CHECK(numbers::values(cache, 1) == Values{3});
    CHECK(numbers::values(cache, 2) == Values{4, 5, 6});
}

TEST_CASE("a refused begin changes nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 3, .batch = 5}};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3}));
    const std::string before = numbers::portrait(cache);
    CHECK(numbers::begin(cache, prompt(0, 2, {4, 5, 6, 7})).error() == Reason::full);
    CHECK(numbers::portrait(cache) == before);
    CHECK(numbers::begin(cache, prompt(0, 2, {4, 5, 6, 7, 8, 9})).error() == Reason::batch_too_long);
    CHECK(numbers::portrait(cache) == before);
    feed(cache, prompt(0, 2, {4, 5, 6}));
    CHECK(numbers::begin(cache, prompt(0, 5, {7})).error() == Reason::full);
}

TEST_CASE("no batch is refused while enough cells are free, however scattered") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    for (int p = 0; p < 8; ++p) feed(cache, {{0, p, 1}, {1, p, 2}});
    REQUIRE(cache.remove({0}, {0}, to_end));
    CHECK(cache.statistics().longest_free_run == 1);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8}));
    CHECK(numbers::begin(cache, prompt(0, 8, {9})).error() == Reason::full);
}

TEST_CASE("an empty batch gives a pass with an empty history, even in a full cache") {
    numbers::Cache<> cache{numbers::small, {.capacity = 4, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    auto pass = numbers::begin(cache, {});
    REQUIRE(pass);
    CHECK(pass->tokens() == 0);
    CHECK(pass->cells().empty());
    CHECK(pass->history().count == 0);
    pass->put(0, std::vector<float>{}, std::vector<float>{});
    const auto [keys, values, mask] = pass->get(0);
    CHECK(keys.extent(0) == 0);
    CHECK(values.extent(0) == 0);
    CHECK(mask.size() == 0);
    pass->commit();
    CHECK(cache.tokens({0}) == 4);
}

TEST_CASE("an invalid batch is a violation that names the given and the expected values") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 4, .batch = 4}};
    feed(cache, prompt(0, 0, {1}));
    const std::string before = numbers::portrait(cache);
    CHECK(violation_of_begin(cache, {{0, 1, 0}, {2, 0, 0}}) == "begin: token 1 has sequence 2, expected 0 to 1");
    CHECK(violation_of_begin(cache, {{-1, 1, 0}}) == "begin: token 0 has sequence -1, expected 0 to 1");
    CHECK(violation_of_begin(cache, {{0, -3, 0}}) == "begin: token 0 has position -3, expected 0 to 2147483646");
    CHECK(violation_of_begin(cache, {{0, to_end.value, 0}})
          == "begin: token 0 has position 2147483647, expected 0 to 2147483646");
    const Position positions[] = {{1}, {2}};
    const Sequence sequences[] = {{0}, {0}, {0}};
    const int one_group[] = {0};
    const int groups[] = {0, 2};
    const int mixed[] = {1, 1};
    CHECK(violation_of([&] {
              static_cast<void>(cache.begin({positions, sequences}));
          })
          == "begin: 3 sequences, expected one for each of 2 positions");
    CHECK(violation_of([&] {
              static_cast<void>(cache.begin({positions, std::span{sequences}.first(2), one_group}));
          })
          == "begin: 1 groups, expected none or one for each of 2 tokens");
    CHECK(violation_of([&] {
              static_cast<void>(cache.begin({positions, std::span{sequences}.first(2), groups}));
          })
          == "begin: token 1 has group 2, expected -1 to 1");
    CHECK(violation_of([&] {
              static_cast<void>(cache.begin({positions, std::vector{0, 1}, mixed}));
          })
          == "begin: token 1 of sequence 1 is in group 1 of sequence 0, expected the tokens of a group to be of one "
             "sequence");
    CHECK(numbers::portrait(cache) == before);
}

TEST_CASE("while a pass is open, every other operation is a violation") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 4, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2}));
    const std::string before = numbers::portrait(cache);
    const std::string open = ": a pass is open, expected it to be committed or dropped first";
    {
        auto pass = numbers::begin(cache, prompt(0, 2, {3}));
        CHECK(violation_of_begin(cache, prompt(0, 3, {4})) == "begin" + open);
        CHECK(violation_of([&] { static_cast<void>(cache.reserve(1)); }) == "reserve" + open);
        CHECK(violation_of([&] { static_cast<void>(cache.remove({0}, {0}, {1})); }) == "remove" + open);
        CHECK(violation_of([&] { (void)cache.copy_prefix({0}, {1}, 1); }) == "copy_prefix" + open);
        CHECK(violation_of([&] { cache.defragment(); }) == "defragment" + open);
    }
    CHECK(numbers::portrait(cache) == before);
    {
        auto reserved = cache.reserve(2);
        CHECK(violation_of_begin(cache, prompt(0, 2, {3})) == "begin" + open);
    }
    feed(cache, prompt(0, 2, {3}));
    CHECK(numbers::values(cache, 0) == Values{1, 2, 3});
}
