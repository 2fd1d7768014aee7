// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// From which position on a sequence may have other keys than a prefill of its tokens gives.
#include "../violations.hpp"
#include "numbers.hpp"
#include <cellar/memory/park.hpp>
#include <cellar/shift/unrotated_shift.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace test_altered {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;

namespace {

const Sequence first{0};
const Sequence second{1};

template <class Window = FullCausal>
numbers::Cache<Window> cache_with(Positions positions = Positions::consecutive) {
    return {numbers::small, {.sequences = 3, .capacity = 60, .batch = 20, .positions = positions}};
}

/// A gap was closed at position 4 of the first sequence, which has eight tokens.
numbers::Cache<> shifted() {
    auto cache = cache_with();
    feed(cache, prompt(0, 0, Values(10)));
    REQUIRE(cache.remove(first, Position{4}, Position{6}));
    return cache;
}

} // namespace

TEST_CASE("closing a gap alters what lies behind it, whatever happens to the keys") {
    auto cache = cache_with();
    feed(cache, prompt(0, 0, Values(10)));
    CHECK(cache.altered_from(first) == to_end);
    REQUIRE(cache.remove(first, Position{6}, Position{8}));
    CHECK(cache.altered_from(first) == Position{6});
    REQUIRE(cache.remove(first, Position{7}, Position{8}));
    CHECK(cache.altered_from(first) == Position{6});
    REQUIRE(cache.remove(first, Position{2}, Position{3}));
    CHECK(cache.altered_from(first) == Position{2});
    feed(cache, prompt(0, 6, Values(3))); // they have seen the altered ones
    CHECK(cache.altered_from(first) == Position{2});
    CHECK(cache.altered_from(second) == to_end);
    CHECK(violation_of([&] { (void)cache.altered_from(Sequence{3}); }) == "sequence 3, expected 0 to 2");

    using Unrotated = cellar::Cache<StandardV<float>, FullCausal, UnrotatedShift>;
    Unrotated other{numbers::small, {.sequences = 1, .capacity = 20, .batch = 20}};
    feed(other, prompt(0, 0, Values(10)));
    REQUIRE(other.remove(first, Position{6}, Position{8}));
    CHECK(other.altered_from(first) == Position{6});
    auto by_less = cache_with();
    feed(by_less, prompt(0, 0, Values(10)));
    REQUIRE(by_less.remove(first, Position{6}, Position{8}, RotateBy{0}));
    CHECK(by_less.altered_from(first) == Position{6});
}

TEST_CASE("a refused removal, and one that leaves nothing behind, alter nothing") {
    cellar::Cache<StandardV<float>> still{numbers::small, {.sequences = 1, .capacity = 20, .batch = 20}};
    feed(still, prompt(0, 0, Values(10)));
    CHECK(still.remove(first, Position{4}, Position{6}).error() == Reason::cannot_shift);
    CHECK(still.altered_from(first) == to_end);
    REQUIRE(still.remove(first, Position{4}, to_end));
    CHECK(still.altered_from(first) == to_end);
}

TEST_CASE("going back to the change, or further, ends it; a later position does not") {
    auto cache = shifted();
    REQUIRE(cache.rewind(first, Position{5}));
    CHECK(cache.altered_from(first) == Position{4});
    REQUIRE(cache.rewind(first, Position{4}));
    CHECK(cache.altered_from(first) == to_end);
    feed(cache, prompt(0, 4, Values(3)));
    CHECK(cache.altered_from(first) == to_end);
    auto emptied = shifted();
    REQUIRE(emptied.remove(first, Position{0}, to_end));
    CHECK(emptied.altered_from(first) == to_end);
}

TEST_CASE("copies, snapshots, parts of them, and what is parked pass the change on") {
    auto cache = shifted();
    REQUIRE(cache.copy_prefix(first, second, to_end));
    CHECK(cache.altered_from(second) == Position{4});
    REQUIRE(cache.copy_prefix(first, second, Position{4}));
    CHECK(cache.altered_from(second) == to_end);
    REQUIRE(cache.copy_prefix(first, second, to_end));
    REQUIRE(cache.copy_prefix(Sequence{2}, second, to_end)); // of an empty sequence
    CHECK(cache.altered_from(second) == to_end);

    CHECK(cache.snapshot(first, Position{0}, Position{4}).value().altered_from() == to_end);
    auto whole = cache.snapshot(first).value();
    CHECK(whole.altered_from() == Position{4});
    auto behind = cache.snapshot(first, Position{6}).value();
    CHECK(behind.altered_from() == Position{6});
    REQUIRE(cache.remove(first, Position{0}, to_end));
    REQUIRE(cache.restore(first, whole, Position{4}));
    CHECK(cache.altered_from(first) == to_end);
    cache.offload(whole);
    REQUIRE(cache.restore(first, whole, Position{6}));
    CHECK(cache.altered_from(first) == Position{4});
    REQUIRE(cache.restore(first, behind));
    CHECK(cache.altered_from(first) == Position{4});
    REQUIRE(cache.reload(whole));
    auto tail = cache.split(whole, Position{5}).value();
    CHECK(whole.altered_from() == Position{4});
    CHECK(tail.altered_from() == Position{5});
    auto middle = cache.split(whole, Position{4}).value();
    CHECK(whole.altered_from() == to_end);
    REQUIRE(cache.merge(whole, std::move(middle)));
    REQUIRE(cache.merge(whole, std::move(tail)));
    CHECK(whole.altered_from() == Position{4});

    auto parked = park(cache, first).value();
    CHECK(cache.altered_from(first) == to_end);
    REQUIRE(unpark(cache, second, parked));
    CHECK(cache.altered_from(second) == Position{4});
    cache.defragment();
    CHECK(cache.altered_from(second) == Position{4});
}

TEST_CASE("a snapshot of altered tokens alters a sequence from where the snapshot begins") {
    auto cache = shifted();
    const auto behind = cache.snapshot(first, Position{6}).value();
    feed(cache, prompt(1, 0, Values(8)));
    REQUIRE(cache.restore(second, behind));
    CHECK(cache.altered_from(second) == Position{6});
}

TEST_CASE("tokens that are put before others of their sequence alter these, unless the pass is dropped") {
    auto cache = cache_with(Positions::any);
    feed(cache, prompt(0, 0, Values(4)) + prompt(1, 0, Values(4)));
    { auto dropped = numbers::begin(cache, prompt(0, 2, Values(1))).value(); }
    CHECK(cache.altered_from(first) == to_end);
    feed(cache, prompt(0, 4, Values(1)) + prompt(1, 2, Values(1)) + prompt(0, 5, Values(1)));
    CHECK(cache.altered_from(first) == to_end);
    CHECK(cache.altered_from(second) == Position{2}); // a second token there, which the first one has not seen
    feed(cache, {{2, 1, 0}, {2, 0, 0}, {2, 2, 0}});   // in any order: they see one another
    CHECK(cache.altered_from(Sequence{2}) == to_end);
    feed(cache, prompt(2, 3, Values(2)));
    CHECK(cache.altered_from(Sequence{2}) == to_end);
}

TEST_CASE("each sequence of a batch is altered by its own tokens alone, in whatever order they come") {
    auto cache = cache_with(Positions::any);
    feed(cache, prompt(0, 0, {1, 2, 3}) + prompt(1, 0, {4, 5}) + prompt(2, 0, {6}));
    // The first gets a token before its last one, the second one in the middle and one behind, the third goes on.
    feed(cache, {{1, 1, 7}, {0, 2, 8}, {2, 1, 9}, {1, 2, 10}, {0, 3, 11}, {1, 0, 12}});
    CHECK(cache.altered_from(first) == Position{2});
    CHECK(cache.altered_from(second) == Position{0});
    CHECK(cache.altered_from(Sequence{2}) == to_end);
    feed(cache, {{2, 5, 13}, {0, 4, 14}}); // a gap: it does not find all that it sees
    CHECK(cache.altered_from(first) == Position{2});
    CHECK(cache.altered_from(Sequence{2}) == Position{5});
}

TEST_CASE("a token that does not find all that it sees is altered") {
    auto cache = cache_with<SlidingWindow<4>>(Positions::any);
    feed(cache, prompt(0, 0, Values(6)));
    feed(cache, prompt(0, 8, Values(1)));
    CHECK(cache.altered_from(first) == Position{8});
    feed(cache, prompt(1, 0, Values(12)));
    REQUIRE(cache.remove(second, Position{9}, to_end)); // of 6 to 8, which the next one sees, 7 and 8 are left
    CHECK(cache.altered_from(second) == to_end);
    feed(cache, prompt(1, 9, Values(2)));
    CHECK(cache.altered_from(second) == Position{9});
    auto whole = cache_with<ChunkedAttention<4>>(Positions::any);
    feed(whole, prompt(0, 8, Values(2))); // at the start of a chunk, a token sees nothing
    CHECK(whole.altered_from(first) == to_end);
}

TEST_CASE("what tokens of another memory push out of the window is not altered any more") {
    using Window = SlidingWindow<3>;
    numbers::Cache<Window> cache{numbers::small,
                                 {.sequences = 1, .capacity = 60, .batch = 20, .positions = Positions::any},
                                 Window{{.sinks = 1}}};
    const auto run = [&](const std::vector<Position>& positions, const std::vector<std::uint8_t>& stored = {}) {
        const std::vector<Sequence> sequences(positions.size(), first);
        auto pass = cache.begin(Batch{.positions = positions, .sequences = sequences, .stored = stored}).value();
        for (int layer = 0; layer < cache.layers(); ++layer) pass.mark_put(layer);
        pass.commit();
    };
    run({Position{0}, Position{2}});
    CHECK(cache.altered_from(first) == Position{2}); // which does not find position 1
    run({Position{3}, Position{5}}, {0, 0});
    CHECK(cache.altered_from(first) == to_end);
    run({Position{1}, Position{2}});
    CHECK(cache.altered_from(first) == to_end);
}

} // namespace test_altered
