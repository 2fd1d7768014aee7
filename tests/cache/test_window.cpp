// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a cache with a window forgets, and when.
#include "numbers.hpp"

namespace test_window {

using namespace cellar;
using numbers::feed;
using numbers::Numbers;
using numbers::prompt;
using numbers::sees;
using numbers::Values;
using numbers::values;

TEST_CASE("a window forgets at commit, not before") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.capacity = 20, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{2}, Position{3}});
    {
        auto pass = numbers::begin(cache, prompt(0, 4, {5, 6, 7}));
        CHECK(cache.range(Sequence{0}) == PositionRange{Position{2}, Position{6}});
    }
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{2}, Position{3}});
    feed(cache, prompt(0, 4, {5, 6, 7}));
    CHECK(values(cache, 0) == Values{6, 7});
    CHECK(cache.statistics().free == cache.cells() - 2);
}

TEST_CASE("a batch longer than the window sees all of its window, and is trimmed at commit") {
    numbers::Cache<SlidingWindow<3>> cache{numbers::small, {.capacity = 20, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    const Numbers tokens = prompt(0, 3, {4, 5, 6, 7, 8});
    auto pass = numbers::begin(cache, tokens);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 0) == Values{2, 3, 4});
    CHECK(sees(cache, *pass, 4) == Values{6, 7, 8});
    pass->commit();
    CHECK(values(cache, 0) == Values{6, 7, 8});
}

TEST_CASE("a retention keeps more than the window") {
    numbers::Cache<SlidingWindow<>> cache{
        numbers::small, {.capacity = 30, .batch = 8}, SlidingWindow<>{2, {.retention = 5}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7}));
    CHECK(values(cache, 0) == Values{3, 4, 5, 6, 7});
    const Numbers next = prompt(0, 7, {8});
    auto pass = numbers::begin(cache, next);
    numbers::put(*pass, cache.shape(), next);
    CHECK(sees(cache, *pass, 0) == Values{7, 8});
    pass->drop();
    for (int p = 0; p < 10; ++p) CHECK(cache.can_resume(Sequence{0}, Position{p}) == (p == 0 || (p >= 3 && p <= 7)));
}

TEST_CASE("sinks are always kept and visible") {
    numbers::Cache<SlidingWindow<2>> cache{
        numbers::small, {.capacity = 30, .batch = 8, .positions = Positions::any}, SlidingWindow<2>{{.sinks = 2}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    CHECK(values(cache, 0) == Values{1, 2, 5, 6});
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{0}, Position{5}});
    const Numbers next = prompt(0, 6, {7});
    auto pass = numbers::begin(cache, next);
    numbers::put(*pass, cache.shape(), next);
    CHECK(sees(cache, *pass, 0) == Values{1, 2, 6, 7});
    pass->drop();
    CHECK(cache.can_resume(Sequence{0}, Position{6}));
    CHECK(cache.can_resume(Sequence{0}, Position{5}));
    CHECK(!cache.can_resume(Sequence{0}, Position{4})); // would see 3
    CHECK(cache.can_resume(Sequence{0}, Position{2}));
    REQUIRE(
        cache.remove(Sequence{0}, Position{0}, Position{1})); // a token that moves to a sink's position becomes a sink
    feed(cache, prompt(0, 5, {7, 8, 9}));
    CHECK(values(cache, 0) == Values{2, 8, 9});
}

TEST_CASE("a token sees its chunk from the beginning") {
    numbers::Cache<ChunkedAttention<4>> cache{numbers::small, {.capacity = 30, .batch = 8}};
    const Numbers tokens = prompt(0, 0, {1, 2, 3, 4, 5, 6});
    auto pass = numbers::begin(cache, tokens);
    numbers::put(*pass, cache.shape(), tokens);
    CHECK(sees(cache, *pass, 3) == Values{1, 2, 3, 4});
    CHECK(sees(cache, *pass, 4) == Values{5});
    CHECK(sees(cache, *pass, 5) == Values{5, 6});
    pass->commit();
    CHECK(values(cache, 0) == Values{3, 4, 5, 6});
}

TEST_CASE("a sequence is not cut where its window has forgotten what the next token sees") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = 2, .capacity = 40, .batch = 20}};
    const Values ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    feed(cache, prompt(0, 0, ten) + prompt(0, 10, ten));
    const Values kept = values(cache, 0); // 15 to 19
    const Refusal cannot_resume{.reason = Reason::cannot_resume, .sequence = Sequence{0}};
    CHECK(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{12}).error() == cannot_resume);
    CHECK(cache.next(Sequence{1}) == Position{0});
    CHECK(cache.remove(Sequence{0}, Position{10}, to_end).error() == cannot_resume);
    CHECK(cache.remove(Sequence{0}, Position{10}, Position{20}).error() == cannot_resume);
    CHECK(cache.rewind(Sequence{0}, Position{10}).error() == cannot_resume);
    CHECK(cache.remove(Sequence{0}, Position{16}, Position{19}).error() == cannot_resume); // 16 would see 13 to 15
    CHECK(cache.next(Sequence{0}) == Position{20});
    CHECK(values(cache, 0) == kept);
    CHECK(cache.remove(Sequence{0}, Position{20}, to_end));       // nothing to remove
    REQUIRE(cache.remove(Sequence{0}, Position{2}, Position{5})); // of what was forgotten
    CHECK(cache.next(Sequence{0}) == Position{17});
    feed(cache, prompt(0, 17, {1}));
    REQUIRE(cache.remove(Sequence{0}, Position{15}, Position{16})); // within the window, which is still complete
    feed(cache, prompt(0, 17, {1}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.next(Sequence{0}) == Position{0});
    feed(cache, prompt(0, 0, ten));
    CHECK(cache.next(Sequence{0}) == Position{10});
}

TEST_CASE("a cut between the sinks and the window is not joined to the sinks") {
    numbers::Cache<SlidingWindow<3>> cache{
        numbers::small, {.sequences = 2, .capacity = 40, .batch = 20}, SlidingWindow<3>{{.sinks = 2}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9}));
    for (const int end : {3, 4})
        CHECK(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{end}).error().reason == Reason::cannot_resume);
    CHECK(cache.remove(Sequence{0}, Position{3}, to_end).error().reason == Reason::cannot_resume);
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    CHECK(values(cache, 1) == Values{1, 2});
    CHECK(cache.next(Sequence{1}) == Position{2});
    feed(cache, prompt(1, 2, {9}));
    CHECK(values(cache, 1) == Values{1, 2, 9});
}

TEST_CASE("a sequence resumes at the start of a chunk, though nothing before it is kept") {
    numbers::Cache<ChunkedAttention<4>> cache{numbers::small, {.sequences = 2, .capacity = 40, .batch = 20}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    REQUIRE(cache.can_resume(Sequence{0}, Position{4}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(cache.tokens(Sequence{1}) == 0);
    {
        const auto dropped = numbers::begin(cache, prompt(1, 4, {20, 21}));
        CHECK(dropped);
    }
    CHECK(cache.next(Sequence{1}) == Position{4});
    feed(cache, prompt(1, 4, {20, 21}));
    CHECK(values(cache, 1) == Values{20, 21});
    auto saved = cache.snapshot(Sequence{1}).value();
    REQUIRE(cache.remove(Sequence{1}, Position{4}, to_end));
    CHECK(cache.next(Sequence{1}) == Position{4});
    REQUIRE(cache.restore(Sequence{1}, saved));
    CHECK(cache.next(Sequence{1}) == Position{6});
    REQUIRE(cache.restore(Sequence{1}, saved, Position{5}));
    CHECK(cache.next(Sequence{1}) == Position{5});
}

TEST_CASE("the pool has cells for all sequences, or for their retention and one batch, rounded up") {
    const auto cells = [](auto window, CacheLimits limits) {
        return numbers::Cache<decltype(window)>{numbers::small, limits, window}.cells();
    };
    CHECK(cells(FullCausal{}, {.sequences = 3, .capacity = 100, .batch = 8}) == 300);
    CHECK(cells(FullCausal{}, {.sequences = 3, .capacity = 100, .batch = 8, .padding = 32}) == 320);
    CHECK(cells(SlidingWindow<10>{}, {.sequences = 1, .capacity = 100, .batch = 8}) == 18);
    CHECK(cells(SlidingWindow<10>{}, {.sequences = 3, .capacity = 100, .batch = 8}) == 41);
    CHECK(cells(SlidingWindow<10>{{.retention = 20}}, {.sequences = 3, .capacity = 100, .batch = 8}) == 68);
    CHECK(cells(SlidingWindow<10>{{.sinks = 4}}, {.sequences = 1, .capacity = 100, .batch = 8}) == 22);
    CHECK(cells(SlidingWindow<10>{}, {.sequences = 1, .capacity = 10, .batch = 8}) == 18);
    CHECK(cells(SlidingWindow<10>{}, {.sequences = 1, .capacity = 9, .batch = 8}) == 9);
    CHECK(cells(ChunkedAttention<16>{}, {.sequences = 2, .capacity = 100, .batch = 8, .padding = 8}) == 48);
}

TEST_CASE("a window that is larger than the capacity forgets nothing") {
    numbers::Cache<SlidingWindow<8>> cache{numbers::small, {.sequences = 2, .capacity = 7, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8}));
    feed(cache, prompt(0, 8, {9, 10}));
    CHECK(values(cache, 0) == Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    CHECK(cache.can_resume(Sequence{0}, Position{3}));
}

TEST_CASE("a token older than the retention is not kept") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.capacity = 30, .batch = 8, .positions = Positions::any}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5}));
    const Numbers late{{0, 1, 6}};
    auto pass = numbers::begin(cache, late);
    numbers::put(*pass, cache.shape(), late);
    CHECK(sees(cache, *pass, 0) == Values{6});
    pass->commit();
    CHECK(values(cache, 0) == Values{4, 5});
}

} // namespace test_window
