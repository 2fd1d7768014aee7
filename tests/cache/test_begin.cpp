// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "numbers.hpp"

namespace test_begin {

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
    CHECK(cache.tokens(Sequence{0}) == 5);
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

TEST_CASE("the numbers of a pass's groups mean nothing to the next pass") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 9, .batch = 9}};
    feed(cache, {{0, 0, 1, 0}, {0, 1, 2, 1}, {0, 2, 3, 2}, {0, 3, 4, 3}});
    const Numbers tokens{{1, 0, 5, 2}, {1, 1, 6, 0}, {1, 2, 7, 2}};
    auto pass = numbers::begin(cache, tokens);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 0) == Values{5, 6, 7});
    CHECK(sees(cache, *pass, 1) == Values{5, 6});
}

TEST_CASE("a group does not extend the window backwards") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.capacity = 20, .batch = 8}};
    const Numbers tokens{{0, 0, 1}, {0, 1, 2}, {0, 2, 3, 1}, {0, 3, 4, 1}, {0, 4, 5}};
    auto pass = numbers::begin(cache, tokens);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 2) == Values{2, 3, 4});
    CHECK(sees(cache, *pass, 3) == Values{3, 4});
}

TEST_CASE("scattered: a batch gets the lowest run of cells, else the lowest cells") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 3, .capacity = 4, .batch = 6, .placement = Placement::scattered}};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3}) + prompt(2, 0, {4, 5, 6}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(cache.remove(Sequence{2}, Position{0}, Position{2}));
    // Cells 2 and 5 are in use; 0 and 1, 3 and 4, and 6 to 11 are free.
    CHECK(cells_of(numbers::begin(cache, prompt(0, 0, {7, 8})).value().cells()) == std::vector<Cell>{0, 1});
    CHECK(cells_of(numbers::begin(cache, prompt(0, 0, {7, 8, 9})).value().cells()) == std::vector<Cell>{6, 7, 8});
    feed(cache, prompt(0, 0, {7, 8, 9, 10}));
    CHECK(cells_of(numbers::begin(cache, prompt(1, 1, {1, 2, 3, 4, 5})).value().cells())
          == std::vector<Cell>{0, 1, 3, 4, 10});
}

TEST_CASE("by blocks, a sequence goes on behind its last cell, else in a block that is wholly free") {
    numbers::Cache<> cache{numbers::small, {.sequences = 4, .cells = 200, .batch = 150}}; // the last block has 8 cells
    const auto cells = [&](int sequence, int n) {
        const int first = cache.next(Sequence{sequence}).value;
        const auto pass = numbers::begin(cache, prompt(sequence, first, Values(static_cast<std::size_t>(n))));
        return cells_of(pass.value().cells());
    };
    const auto store = [&](int sequence, int n) {
        feed(cache, prompt(sequence, cache.next(Sequence{sequence}).value, Values(static_cast<std::size_t>(n))));
    };
    CHECK(cells(0, 2) == std::vector<Cell>{0, 1});
    store(0, 2);
    CHECK(cells(1, 1) == std::vector<Cell>{64});
    store(1, 1);
    CHECK(cells(0, 1) == std::vector<Cell>{2});
    CHECK(cells(1, 2) == std::vector<Cell>{65, 66});
    store(0, 62); // up to the end of its block
    CHECK(cells(0, 1) == std::vector<Cell>{128});
    CHECK(cells(0, 2) == std::vector<Cell>{128, 129});
    REQUIRE(cache.copy_prefix(Sequence{1}, Sequence{2},
                              Position{1})); // the first that goes on gets the rest of the shared block
    store(2, 1);
    CHECK(cells(2, 1) == std::vector<Cell>{66});
    CHECK(cells(1, 1) == std::vector<Cell>{128});
    store(1, 1);
    CHECK(cells(3, 3) == std::vector<Cell>{192, 193, 194});
    store(3, 3);
    // No block is wholly free, and cells 66 to 127 and 129 to 191 are free, and 195 to 199.
    CHECK(cells(0, 1) == std::vector<Cell>{160}); // 31 cells are left for sequence 1
    CHECK(cells(0, 40).front() == 152);           // 23 cells
    CHECK(cells(0, 63).front() == 129);
    CHECK(cells(0, 64).back() == 97);
    CHECK(cells(1, 70).back() == 103);
    CHECK(cells(3, 5).back() == 199);
    CHECK(cells(3, 6).back() == 160);
    CHECK(cells(0, 130).size() == 130); // all
    CHECK(numbers::begin(cache, prompt(0, 64, Values(131))).error() == Reason::full);
    // A sequence that ends leaves wholly free blocks.
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cells(0, 1) == std::vector<Cell>{0});
    CHECK(cells(3, 6).back() == 0);
}

TEST_CASE("by blocks, a prompt gets the lowest run of wholly free blocks that holds it") {
    numbers::Cache<> cache{numbers::small, {.sequences = 4, .cells = 640, .batch = 400}};
    const auto first_and_last = [&](int sequence, int n) {
        const int first = cache.next(Sequence{sequence}).value;
        auto pass = numbers::begin(cache, prompt(sequence, first, Values(static_cast<std::size_t>(n)))).value();
        return std::pair{pass.cells().front(), pass.cells().back()};
    };
    feed(cache, prompt(0, 0, Values(100)) + prompt(1, 0, Values(64)) + prompt(2, 0, Values(1)));
    REQUIRE(cache.remove(Sequence{1}, Position{0},
                         to_end)); // blocks 0 and 1 and cell 192 are in use; block 2 and those from 4 are free
    CHECK(first_and_last(1, 64) == std::pair{128, 191});
    CHECK(first_and_last(1, 65) == std::pair{256, 320});
    CHECK(first_and_last(0, 28) == std::pair{100, 127});
    CHECK(first_and_last(0, 92) == std::pair{100, 191}); // goes on in block 2
    CHECK(first_and_last(0, 93) == std::pair{100, 256});
    CHECK(first_and_last(2, 300) == std::pair{193, 492});
    feed(cache, prompt(3, 0, Values(1)));
    CHECK(first_and_last(1, 384) == std::pair{256, 639});
    feed(cache, prompt(2, 1, Values(400)));
    // No block is wholly free, and cells 100 to 127, 129 to 191 and 593 to 639 are free.
    CHECK(first_and_last(1, 64) == std::pair{129, 616});
}

TEST_CASE("contiguous placement defragments only if no run is long enough") {
    const CacheLimits limits{.sequences = 3, .capacity = 4, .batch = 6, .placement = Placement::contiguous};
    numbers::Cache<> cache{numbers::small, limits};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3}) + prompt(2, 0, {4, 5, 6}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
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
    const auto too_long = numbers::begin(cache, prompt(0, 2, {4, 5, 6, 7, 8, 9}));
    REQUIRE_FALSE(too_long);
    CHECK(too_long.error() == Reason::batch_too_long);
    CHECK(too_long.error().needed == 6);
    CHECK(too_long.error().available == cache.limits().batch);
    CHECK(numbers::portrait(cache) == before);
    feed(cache, prompt(0, 2, {4, 5, 6}));
    CHECK(numbers::begin(cache, prompt(0, 5, {7})).error() == Reason::full);
}

TEST_CASE("no batch is refused while enough cells are free, however scattered") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 2, .capacity = 8, .batch = 8, .placement = Placement::scattered}};
    for (int p = 0; p < 8; ++p) feed(cache, {{0, p, 1}, {1, p, 2}});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
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
    CHECK(cache.tokens(Sequence{0}) == 4);
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
    const Position positions[] = {Position{1}, Position{2}};
    const Sequence sequences[] = {Sequence{0}, Sequence{0}, Sequence{0}};
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

TEST_CASE("a tree of drafts that is none is a violation, and a pass with branches cannot be committed") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 4}};
    numbers::Cache<> gaps{numbers::small, {.sequences = 2, .capacity = 8, .batch = 4, .positions = Positions::any}};
    feed(cache, prompt(0, 0, {1}));
    const std::string before = numbers::portrait(cache);
    using List = std::vector<int>;
    const auto begin = [](auto& of, const List& positions, const List& sequences, const List& parents) {
        return violation_of([&] {
            static_cast<void>(of.begin(Batch{.positions = positions, .sequences = sequences, .parents = parents}));
        });
    };
    CHECK(begin(cache, {1, 2}, {0, 0}, {-1}) == "begin: 1 parents, expected none or one for each of 2 tokens");
    CHECK(begin(cache, {1, 2}, {0, 0}, {-1, 1})
          == "begin: the parent of token 1 is 1, expected a token before it, or -1 for the first of a branch");
    CHECK(begin(cache, {1, 2}, {0, 0}, {-2, 0})
          == "begin: the parent of token 0 is -2, expected a token before it, or -1 for the first of a branch");
    CHECK(begin(cache, {1, 0}, {0, 1}, {-1, 0})
          == "begin: the parent of token 1 is of another sequence, expected one of its own");
    CHECK(begin(cache, {1, 2, 3}, {0, 0, 0}, {-1, 0, 0})
          == "begin: token 2 at position 3 has a parent at position 1, expected the position before it");
    CHECK(begin(gaps, {5, 4}, {0, 0}, {-1, 0})
          == "begin: token 1 at position 4 has a parent at position 5, expected a smaller one");
    CHECK(begin(gaps, {4, 9}, {0, 0}, {-1, 0}) == "none");
    CHECK(numbers::portrait(cache) == before);
    {
        const Numbers tokens{{0, 1, 2}, {0, 2, 3}, {0, 2, 4}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{1}}.add_child(0).add_child(0)).value();
        numbers::put(pass, cache.shape(), tokens);
        CHECK(violation_of([&] { pass.commit(); })
              == "commit: the tokens have branches, expected a pass of one branch");
    }
    cache.reserve(2).commit(); // its tokens have none
    CHECK(numbers::values(cache, 0) == Values{1});
    auto chain = cache.begin(BatchBuilder{Sequence{0}, Position{1}}.add_child(0).add(Sequence{1}, Position{0})).value();
    numbers::put(chain, cache.shape(), {{0, 1, 2}, {0, 2, 3}, {1, 0, 4}});
    chain.commit();
    CHECK(numbers::values(cache, 0) == Values{1, 2, 3});
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
        CHECK(violation_of([&] { static_cast<void>(cache.remove(Sequence{0}, Position{0}, Position{1})); })
              == "remove" + open);
        CHECK(violation_of([&] { (void)cache.copy_prefix(Sequence{0}, Sequence{1}, Position{1}); })
              == "copy_prefix" + open);
        CHECK(violation_of([&] { cache.defragment(); }) == "defragment" + open);
        CHECK(violation_of([&] { cache.reserve_lists(4); }) == "reserve_lists" + open);
        CHECK(violation_of([&] { (void)cache.rewind(Sequence{0}, Position{1}); }) == "rewind" + open);
    }
    CHECK(numbers::portrait(cache) == before);
    {
        auto reserved = cache.reserve(2);
        CHECK(violation_of_begin(cache, prompt(0, 2, {3})) == "begin" + open);
    }
    {
        auto pass = numbers::begin(cache, prompt(0, 2, {3}));
        numbers::put(*pass, cache.shape(), prompt(0, 2, {3}));
        CHECK(violation_of([&] { cache.reserve_lists(4, 2); }) == "reserve_lists" + open);
        CHECK(violation_of([&] { (void)cache.rewind(Sequence{0}, Position{1}); }) == "rewind" + open);
        pass->commit();
    }
    CHECK(numbers::values(cache, 0) == Values{1, 2, 3});
}

} // namespace test_begin
