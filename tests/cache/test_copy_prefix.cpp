// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "numbers.hpp"

#include <random>

namespace test_copy_prefix {

using namespace cellar;
using numbers::feed;
using numbers::Held;
using numbers::prompt;
using numbers::Values;
using numbers::values;

TEST_CASE("a copied prefix is shared, takes no cells, and both sequences continue separately") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 6, .batch = 6}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    CHECK(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    CHECK(cache.statistics().free == 14);
    CHECK(cache.statistics().shared == 2);
    CHECK(cache.statistics().tokens == 6);
    CHECK(cache.range(Sequence{1}) == PositionRange{Position{0}, Position{1}});
    feed(cache, prompt(1, 2, {5}) + prompt(0, 4, {6}));
    CHECK(values(cache, 0) == Values{1, 2, 3, 4, 6});
    CHECK(values(cache, 1) == Values{1, 2, 5});
    CHECK(values(cache, 2) == Values{});
}

TEST_CASE("a copy replaces the target and frees its cells") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 6, .batch = 6}};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(1, 0, {3, 4, 5, 6}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    CHECK(values(cache, 1) == Values{1, 2});
    CHECK(cache.statistics().free == 10);
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{0}));
    CHECK(values(cache, 1) == Values{});
    CHECK(cache.tokens(Sequence{1}) == 0);
    CHECK(values(cache, 0) == Values{1, 2});
    CHECK(cache.statistics().shared == 0);
}

TEST_CASE("a copy longer than its source is the whole source, and a copy of length 0 is empty") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 6, .batch = 6}};
    feed(cache, prompt(0, 0, {1, 2}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{100}));
    CHECK(values(cache, 1) == Values{1, 2});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(values(cache, 1) == Values{1, 2});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{100}));
    CHECK(values(cache, 1) == Values{});
    CHECK(cache.statistics().free == 12);
}

TEST_CASE("a copy onto itself changes nothing, whatever its length") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 6, .batch = 6}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    const std::string before = numbers::portrait(cache);
    for (const int length : {0, 2, 3, 100}) REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{0}, Position{length}));
    CHECK(numbers::portrait(cache) == before);
}

TEST_CASE("a copy takes tokens by position, not by order of arrival") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 6, .positions = Positions::any}};
    feed(cache, {{0, 5, 1}, {0, 0, 2}, {0, 3, 3}, {0, 3, 4}});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(values(cache, 1) == Values{2, 3, 4});
    CHECK(cache.range(Sequence{1}) == PositionRange{Position{0}, Position{3}});
}

TEST_CASE("a copy has only the tokens that a window has kept") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.sequences = 2, .capacity = 30, .batch = 6}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(cache.range(Sequence{1}) == PositionRange{Position{2}, Position{3}});
    CHECK(cache.can_resume(Sequence{1}, Position{4}));
    CHECK(!cache.can_resume(Sequence{1}, Position{2}));
    feed(cache, prompt(1, 4, {6}));
    CHECK(values(cache, 0) == Values{3, 4, 5});
    CHECK(values(cache, 1) == Values{3, 4, 6});
}

TEST_CASE("a copy that could not go on is refused, and nothing changes") {
    numbers::Cache<SlidingWindow<3>> cache{numbers::small, {.sequences = 2, .capacity = 30, .batch = 12}};
    feed(cache, prompt(0, 0, Values(10)) + prompt(1, 0, {1, 2})); // keeps 6 to 9
    const std::string before = numbers::portrait(cache);
    for (const int end : {1, 5, 7}) {
        const auto refused = cache.copy_prefix(Sequence{0}, Sequence{1}, Position{end});
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{0}});
        CHECK(numbers::portrait(cache) == before);
        CHECK(cache.next(Sequence{1}) == Position{2});
    }
    CHECK(cache.copy_prefix(Sequence{0}, Sequence{0}, Position{5})); // nothing happens
    for (const Position end : {Position{0}, Position{8}, Position{9}, Position{10}, to_end}) {
        REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, end));
        CHECK(cache.begin(Sequence{1}, 1)); // and dropped
    }
    numbers::Cache<SlidingWindow<3>> any{numbers::small,
                                         {.sequences = 2, .capacity = 30, .batch = 12, .positions = Positions::any}};
    feed(any, prompt(0, 0, Values(10)));
    CHECK(any.copy_prefix(Sequence{0}, Sequence{1}, Position{7}));
}

TEST_CASE("invalid copies are violations") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 6, .batch = 6}};
    CHECK(violation_of([&] { (void)cache.copy_prefix(Sequence{0}, Sequence{2}, Position{1}); })
          == "sequence 2, expected 0 to 1");
    CHECK(violation_of([&] { (void)cache.copy_prefix(Sequence{-1}, Sequence{0}, Position{1}); })
          == "sequence -1, expected 0 to 1");
    CHECK(violation_of([&] { (void)cache.copy_prefix(Sequence{0}, Sequence{1}, Position{-1}); })
          == "copy_prefix: up to position -1, expected 0 or more");
}

TEST_CASE("a sequence can be resumed where everything visible is kept") {
    numbers::Cache<SlidingWindow<3>> cache{numbers::small, {.sequences = 2, .capacity = 30, .batch = 12}};
    CHECK(cache.can_resume(Sequence{0}, Position{0}));
    CHECK(!cache.can_resume(Sequence{0}, Position{1}));
    feed(cache, prompt(0, 0, Values(10))); // keeps 6 to 9: one more than the window
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{6}, Position{9}});
    const std::vector<int> yes{0, 8, 9, 10};
    for (int p = 0; p < 14; ++p)
        CHECK(cache.can_resume(Sequence{0}, Position{p}) == (std::find(yes.begin(), yes.end(), p) != yes.end()));
    REQUIRE(cache.remove(Sequence{0}, Position{8}, to_end));
    CHECK(cache.can_resume(Sequence{0}, Position{8}));
    CHECK(!cache.can_resume(Sequence{0}, Position{9}));
    CHECK(cache.can_resume(Sequence{0}, Position{0}));
}

TEST_CASE("a sequence can be resumed where a token sees nothing before itself, but not beyond its end") {
    numbers::Cache<SlidingWindow<1>> one{numbers::small, {.capacity = 30, .batch = 12}};
    feed(one, prompt(0, 0, Values(3)));
    for (int p = 0; p < 10; ++p) CHECK(one.can_resume(Sequence{0}, Position{p}) == (p <= 3));
    numbers::Cache<SlidingWindow<2>> two{numbers::small, {.capacity = 30, .batch = 12}};
    feed(two, prompt(0, 0, Values(3)));
    for (int p = 0; p < 10; ++p) CHECK(two.can_resume(Sequence{0}, Position{p}) == (p == 0 || p == 2 || p == 3));
    numbers::Cache<ChunkedAttention<4>> chunks{numbers::small, {.capacity = 30, .batch = 12}};
    feed(chunks, prompt(0, 0, Values(3)));
    for (int p = 0; p < 10; ++p) CHECK(chunks.can_resume(Sequence{0}, Position{p}) == (p <= 3));
    CHECK(chunks.resumable_prefix(Sequence{0}, Position{9}) == Position{3});
    // Where positions may jump, it may go on at the start of any chunk.
    numbers::Cache<ChunkedAttention<4>> jumping{numbers::small,
                                                {.capacity = 30, .batch = 12, .positions = Positions::any}};
    feed(jumping, prompt(0, 0, Values(3)));
    for (int p = 0; p < 10; ++p) CHECK(jumping.can_resume(Sequence{0}, Position{p}) == (p <= 4 || p == 8));
}

TEST_CASE("a sequence cannot be resumed where a missing position would be visible") {
    numbers::Cache<> cache{numbers::small, {.capacity = 30, .batch = 12, .positions = Positions::any}};
    feed(cache, {{0, 0, 1}, {0, 1, 2}, {0, 3, 3}, {0, 4, 4}});
    CHECK(cache.can_resume(Sequence{0}, Position{2}));
    CHECK(!cache.can_resume(Sequence{0}, Position{3}));
    CHECK(!cache.can_resume(Sequence{0}, Position{5}));
    feed(cache, {{0, 2, 5}});
    CHECK(cache.can_resume(Sequence{0}, Position{5}));
}

TEST_CASE("queries about unknown sequences are violations") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 6, .batch = 6}};
    CHECK(violation_of([&] { static_cast<void>(cache.can_resume(Sequence{2}, Position{0})); })
          == "sequence 2, expected 0 to 1");
    CHECK(violation_of([&] { static_cast<void>(cache.can_resume(Sequence{0}, Position{-1})); })
          == "can_resume: position -1, expected 0 or more");
    CHECK(violation_of([&] { static_cast<void>(cache.range(Sequence{-1})); }) == "sequence -1, expected 0 to 1");
    CHECK(violation_of([&] { static_cast<void>(cache.tokens(Sequence{2})); }) == "sequence 2, expected 0 to 1");
}

namespace {

/// True if `resumable_prefix` equals a search with `can_resume`.
template <class Cache>
bool finds_nearest(const Cache& cache, int most) {
    int nearest = 0;
    bool found = true;
    for (int p = 0; p <= most; ++p) {
        if (cache.can_resume(Sequence{0}, Position{p})) nearest = p;
        found = found && cache.resumable_prefix(Sequence{0}, Position{p}) == Position{nearest};
    }
    return found;
}

} // namespace

TEST_CASE("resumable_prefix is the largest position that can be resumed") {
    const numbers::Numbers gaps{{0, 0, 1},  {0, 1, 2},  {0, 2, 3},  {0, 9, 4},
                                {0, 11, 5}, {0, 12, 6}, {0, 13, 7}, {0, 30, 8}};
    const CacheLimits limits{.capacity = 60, .batch = 20, .positions = Positions::any};
    const auto check = [&]<class Window>(const Window& window) {
        numbers::Cache<Window> empty{numbers::small, limits, window};
        CHECK(finds_nearest(empty, 40));
        numbers::Cache<Window> torn{numbers::small, limits, window};
        feed(torn, gaps);
        CHECK(finds_nearest(torn, 50));
        numbers::Cache<Window> long_one{numbers::small, limits, window};
        for (int p = 0; p < 40; p += 20) feed(long_one, prompt(0, p, Values(20)));
        CHECK(finds_nearest(long_one, 60));
        REQUIRE(long_one.remove(Sequence{0}, Position{38}, to_end));
        CHECK(finds_nearest(long_one, 60));
    };
    check(FullCausal{});
    for (const int width : {1, 2, 3, 7, 100}) {
        check(SlidingWindow<>{width});
        check(SlidingWindow<>{width, {.retention = width + 5}});
        check(SlidingWindow<>{width, {.sinks = 4}});
        check(ChunkedAttention<>{width});
        check(ChunkedAttention<>{width, {.sinks = 3}});
    }
    std::mt19937 random;
    for (int round = 0; round < 200; ++round) {
        const auto sinks = static_cast<std::int32_t>(random() % 12);
        numbers::Cache<SlidingWindow<>> some{numbers::small, limits, SlidingWindow<>{5, {.sinks = sinks}}};
        for (int p = 0; p < 20; ++p)
            if (random() % 8 != 0) feed(some, {{0, p, 1}});
        CHECK(finds_nearest(some, 30));
    }
    // A gap takes one step, however long it is.
    numbers::Cache<SlidingWindow<>> short_one{numbers::small, limits, SlidingWindow<>{4, {.retention = 60}}};
    feed(short_one, gaps);
    CHECK(short_one.resumable_prefix(Sequence{0}, to_end) == Position{14});
    numbers::Cache<> cache{numbers::small, limits};
    CHECK(violation_of([&] { static_cast<void>(cache.resumable_prefix(Sequence{0}, Position{-1})); })
          == "resumable_prefix: position -1, expected 0 or more");
}

} // namespace test_copy_prefix
