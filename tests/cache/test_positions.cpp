// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which positions a cache accepts.
#include "../violations.hpp"
#include "numbers.hpp"

namespace test_positions {

using namespace cellar;
using numbers::feed;
using numbers::Numbers;
using numbers::prompt;
using numbers::Values;

namespace {

/// The refusal of a batch. Checks that it changes nothing.
template <class C>
Refusal refused(C& cache, const Numbers& tokens) {
    const std::string before = numbers::portrait(cache);
    const auto begun = numbers::begin(cache, tokens);
    REQUIRE_FALSE(begun.has_value());
    CHECK(numbers::portrait(cache) == before);
    return begun.error();
}

Refusal not_next(int sequence, int expected) {
    return {.reason = Reason::not_next, .sequence = Sequence{sequence}, .expected = Position{expected}};
}

} // namespace

TEST_CASE("a token must follow the last one of its sequence") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 8, .batch = 8}};
    CHECK(refused(cache, {{0, 1, 1}}) == not_next(0, 0));
    feed(cache, prompt(0, 0, {1, 2, 3}) + prompt(1, 0, {4}));
    CHECK(refused(cache, {{0, 4, 1}}) == not_next(0, 3)); // a gap
    CHECK(refused(cache, {{0, 2, 1}}) == not_next(0, 3)); // the last one again
    CHECK(refused(cache, {{0, 0, 1}}) == not_next(0, 3)); // backwards
    CHECK(refused(cache, prompt(0, 3, {1, 2}) + prompt(1, 3, {3})) == not_next(1, 1));
    CHECK(refused(cache, {{0, 3, 1}, {0, 5, 2}}) == not_next(0, 4)); // a gap within the batch
    CHECK(refused(cache, {{0, 4, 1}, {0, 3, 2}}) == not_next(0, 3)); // another order
    CHECK(refused(cache, {{0, 3, 1}, {0, 4, 2}, {0, 3, 3}}) == not_next(0, 5));
    CHECK(to_string(not_next(1, 7))
          == "not next: a token does not follow its sequence's last one; sequence 1 expects position 7");
    const Refusal gap = refused(cache, {{0, 4, 1}});
    CHECK(gap.needed == 4);
    CHECK(gap.available == 3);
    CHECK(to_string(gap)
          == "not next: a token does not follow its sequence's last one; sequence 0 expects position 3, not 4");
    CHECK(to_string(cache.rewind(Sequence{0}, Position{6}).error())
          == "not next: a token does not follow its sequence's last one; sequence 0 expects position 3, not 6");
    // Sequences may be mixed in a batch.
    feed(cache, {{1, 1, 5}, {0, 3, 6}, {2, 0, 7}, {1, 2, 8}, {0, 4, 9}});
    CHECK(numbers::values(cache, 1) == Values{4, 5, 8});
}

TEST_CASE("tokens of one batch may share a position, tokens of two batches may not") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8}};
    feed(cache, {{0, 0, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 2, 5}});
    CHECK(cache.next(Sequence{0}) == Position{3});
    CHECK(refused(cache, {{0, 2, 1}}) == not_next(0, 3));
    feed(cache, {{0, 3, 6}, {0, 3, 7}});
    CHECK(numbers::values(cache, 0) == Values{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("the token after a forgotten commit is refused") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8}};
    {
        auto pass = numbers::begin(cache, prompt(0, 0, {1, 2}));
        numbers::put(*pass, cache.shape(), prompt(0, 0, {1, 2}));
    }
    CHECK(refused(cache, prompt(0, 2, {3})) == not_next(0, 0));
}

TEST_CASE("next is right after every operation") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    CHECK(cache.next(Sequence{0}) == Position{0});
    feed(cache, prompt(0, cache.next(Sequence{0}).value, {1, 2, 3, 4}));
    CHECK(cache.next(Sequence{0}) == Position{4});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    CHECK(cache.next(Sequence{1}) == Position{3});
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{3}));
    CHECK(cache.next(Sequence{0}) == Position{2});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.next(Sequence{0}) == Position{0});
    CHECK(violation_of([&] { (void)cache.next(Sequence{2}); }) == "sequence 2, expected 0 to 1");
}

TEST_CASE("a token that would see positions that are not kept is refused") {
    numbers::Cache<SlidingWindow<8>> cache{numbers::small, {.sequences = 3, .capacity = 100, .batch = 13}};
    feed(cache, prompt(0, 0, Values(12)) + prompt(1, 0, {1}));
    CHECK(cache.remove(Sequence{0}, Position{2}, Position{9}).error()
          == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{0}}); // of 3 to 11, 3 would be left
    const Refusal expected{.reason = Reason::cannot_resume, .sequence = Sequence{0}};
    CHECK(cache.copy_prefix(Sequence{0}, Sequence{2}, Position{9}).error() == expected); // of 2 to 8, 3 to 8 are kept
    const std::string text = "cannot resume: the next token would see positions that are not kept; sequence 0";
    CHECK(to_string(expected) == text);
    CHECK(to_string(cache.copy_prefix(Sequence{0}, Sequence{2}, Position{9}).error())
          == text + "; asked for position 9, possible is 0");
    CHECK(to_string(cache.rewind(Sequence{0}, Position{9}).error()) == text + "; asked for position 9, possible is 0");
    // Of 3 to 11, 9 to 11 are left, at 2 to 4.
    CHECK(to_string(cache.remove(Sequence{0}, Position{2}, Position{9}).error())
          == text + "; asked for position 5, possible is 0");
    CHECK(cache.remove(Sequence{0}, Position{2}, Position{9}).error().needed == 5);
    feed(cache, prompt(1, 1, {2, 3, 4}));
    const auto snapshot = cache.snapshot(Sequence{1}, Position{2}).value();
    CHECK(to_string(cache.restore(Sequence{2}, snapshot).error())
          == "cannot resume: the next token would see positions that are not kept; sequence 2; asked for position 4");
    feed(cache, prompt(2, 0, {1, 2}));
}

TEST_CASE("a refused batch leaves nothing behind for the next one") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    for (int p = 0; p < 6; ++p) {
        CHECK(refused(cache, prompt(0, p, {1}) + prompt(1, p + 1, {2})) == not_next(1, p));
        feed(cache, prompt(0, p, {1}) + prompt(1, p, {2}));
    }
    CHECK(cache.tokens(Sequence{0}) == 6);
}

TEST_CASE("Positions::any accepts gaps and any order") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8, .positions = Positions::any}};
    feed(cache, {{0, 5, 1}, {0, 2, 2}});
    feed(cache, {{0, 2, 3}, {0, 9, 4}});
    CHECK(cache.next(Sequence{0}) == Position{10});
    CHECK(cache.tokens(Sequence{0}) == 4);
}

} // namespace test_positions
