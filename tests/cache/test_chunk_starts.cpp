// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Where a token sees nothing before itself, a sequence goes on without any token below: at the start of a chunk, and
// anywhere in a window of one position.
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace test_chunk_starts {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

using Chunks = numbers::Cache<ChunkedAttention<4>>;

/// A cache whose sequence 0 keeps positions 5 to 9 of ten.
Chunks chunks(const CacheLimits& limits = {.sequences = 3, .capacity = 40, .batch = 10}) {
    Chunks cache{numbers::small, limits};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    return cache;
}

/// True if s has no tokens, goes on at 4, and does so.
template <class Cache>
bool goes_on_at_4(Cache& cache, int s) {
    if (cache.tokens(Sequence{s}) != 0 || cache.next(Sequence{s}) != Position{4}) return false;
    feed(cache, prompt(s, 4, {20, 21}));
    return values(cache, s) == Values{20, 21} && cache.next(Sequence{s}) == Position{6} && audit(cache) == "";
}

} // namespace

TEST_CASE("a sequence goes back to the start of a chunk, though nothing below it is kept") {
    auto cache = chunks();
    REQUIRE(cache.resumable_prefix(Sequence{0}, Position{5}) == Position{4});
    CHECK(cache.rewind(Sequence{0}, Position{5}).error()
          == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{0}});
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    CHECK(goes_on_at_4(cache, 0));
}

TEST_CASE("a sequence does not go back to where it has not been") {
    auto cache = chunks();
    const Position next = cache.next(Sequence{0});
    REQUIRE(next < Position{12});
    CHECK_FALSE(cache.can_resume(Sequence{0}, Position{12})); // the start of a chunk, which sees nothing before itself
    CHECK(cache.resumable_prefix(Sequence{0}, Position{12}) == next);
    const Refusal not_reached{.reason = Reason::not_next, .sequence = Sequence{0}, .expected = next};
    CHECK(cache.rewind(Sequence{0}, Position{12}).error() == not_reached);
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{12}).error() == not_reached);
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    CHECK(cache.rewind(Sequence{0}, Position{8}).error().reason == Reason::not_next);
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{8}).error().reason == Reason::not_next);
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    CHECK(cache.next(Sequence{0}) == Position{4});
}

TEST_CASE("a sequence that was cut at the start of a chunk has a snapshot, and goes on where that ends") {
    auto cache = chunks();
    REQUIRE(cache.remove(Sequence{0}, Position{4}, to_end));
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.to() == Position{4});
    CHECK(snapshot.tokens() == 0);
    CHECK(cache.statistics().snapshots == 1);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    feed(cache, prompt(2, 0, {1, 2, 3, 4, 5, 6}));
    REQUIRE(cache.restore(Sequence{2}, snapshot)); // gives up what it has
    CHECK(goes_on_at_4(cache, 1));
    CHECK(goes_on_at_4(cache, 2));
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{4}).error().reason
          == Reason::not_next); // sequence 0 has nothing
}

TEST_CASE("a snapshot is restored up to the start of a chunk, though it has nothing below") {
    auto cache = chunks();
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    REQUIRE(snapshot.tokens() == 5);
    CHECK(cache.restore(Sequence{1}, snapshot, Position{5}).error().reason == Reason::cannot_resume);
    REQUIRE(cache.restore(Sequence{1}, snapshot, Position{4}));
    CHECK(goes_on_at_4(cache, 1));
    REQUIRE(cache.restore(Sequence{1}, snapshot, Position{8}));
    CHECK(values(cache, 1) == Values{6, 7, 8});
    CHECK(cache.next(Sequence{1}) == Position{8});
}

TEST_CASE("a snapshot without tokens is a window if a pass that ended there would have forgotten some") {
    auto cache = chunks({.sequences = 2, .capacity = 40, .batch = 20});
    feed(cache, prompt(0, 10, {11, 12, 13, 14, 15, 16}));
    REQUIRE(cache.rewind(Sequence{0}, Position{8}));
    CellSnapshot window = cache.snapshot(Sequence{0}, Position{6}).value();
    CHECK(window.from() == Position{0});
    CHECK(window.to() == Position{8});
    CHECK(window.tokens() == 0);
    CHECK(cache.split(window, Position{4}).error().reason == Reason::cannot_split);
    REQUIRE(cache.restore(Sequence{1}, window));
    CHECK(cache.next(Sequence{1}) == Position{8});
}

TEST_CASE("snapshots without tokens are offloaded, divided, merged and defragmented as others are") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend}) {
        auto cache = chunks();
        REQUIRE(cache.rewind(Sequence{0}, Position{4}));
        CellSnapshot head = cache.snapshot(Sequence{0}).value();
        feed(cache, prompt(1, 0, {1, 2, 3, 4, 5}));
        CellSnapshot tail = cache.snapshot(Sequence{1}, Position{4}).value();
        cache.offload(head, to);
        CHECK(head.bytes() == 0);
        REQUIRE(cache.restore(Sequence{2}, head));
        CHECK(cache.next(Sequence{2}) == Position{4});
        REQUIRE(cache.reload(head));
        cache.defragment();
        CellSnapshot upper = cache.split(head, Position{2}).value();
        CHECK(upper.from() == Position{2});
        REQUIRE(cache.merge(head, std::move(upper)));
        cache.offload(head, to);
        REQUIRE(cache.merge(head, std::move(tail)));
        CHECK(head.tokens() == 1);
        REQUIRE(cache.restore(Sequence{2}, head));
        CHECK(values(cache, 2) == Values{5});
        CHECK(cache.next(Sequence{2}) == Position{5});
        REQUIRE(cache.restore(Sequence{2}, head, Position{4}));
        CHECK(goes_on_at_4(cache, 2));
    }
}

TEST_CASE("a snapshot at the start of a chunk has what was scheduled, and nothing once that is forgotten") {
    auto cache = chunks();
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    feed(cache, prompt(0, 4, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{8}).value().tokens() == 4);
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{8}).value().tokens() == 0); // the schedule has ended
}

TEST_CASE("a window of one position goes back to wherever its sequence has been") {
    numbers::Cache<SlidingWindow<1>> cache{numbers::small, {.sequences = 2, .capacity = 10, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    REQUIRE(cache.restore(Sequence{1}, snapshot, Position{4}));
    CHECK(goes_on_at_4(cache, 1));
    CHECK(cache.rewind(Sequence{0}, Position{7}).error().reason == Reason::not_next);
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    CHECK(goes_on_at_4(cache, 0));
}

TEST_CASE(
    "where positions may have gaps, a sequence goes back to any start of a chunk, and goes on after its last one") {
    auto cache = chunks({.sequences = 2, .capacity = 40, .batch = 10, .positions = Positions::any});
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    CHECK(cache.next(Sequence{0}) == Position{0});
    const CellSnapshot snapshot =
        cache.snapshot(Sequence{0}, Position{0}, Position{4}).value(); // as the snapshot of a hybrid asks for
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    CHECK(cache.next(Sequence{1}) == Position{0});
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{5}).error().reason == Reason::cannot_resume);
}

TEST_CASE("all members of a hybrid go back to the start of a chunk") {
    for (const Positions positions : {Positions::consecutive, Positions::any}) {
        using Far = numbers::Cache<>;
        const CacheLimits limits{.sequences = 3, .capacity = 40, .batch = 10, .positions = positions};
        Hybrid<Repeat<Chunks, Far>, Chunks, Far> memory{2, Chunks{numbers::small, limits}, Far{numbers::small, limits}};
        const auto begins = [&](int s, int first, int n) {
            auto pass = memory.begin(BatchBuilder{Sequence{s}, Position{first}, n});
            if (!pass) return false;
            const std::vector<float> keys(static_cast<std::size_t>(2 * n), 1.0F);
            const std::vector<float> rows(static_cast<std::size_t>(n), 1.0F);
            for (int layer = 0; layer < 2; ++layer)
                pass->visit(layer, [&](auto& own, int i) { own.put(i, keys, rows); });
            pass->commit();
            return true;
        };
        REQUIRE(begins(0, 0, 10));
        REQUIRE(memory.resumable_prefix(Sequence{0}, Position{6}) == Position{4});
        auto later = memory.snapshot(Sequence{0}).value();
        REQUIRE(memory.rewind(Sequence{0}, Position{4}));
        CHECK(memory.next(Sequence{0}) == Position{4});
        auto snapshot = memory.snapshot(Sequence{0}).value();
        REQUIRE(memory.restore(Sequence{1}, snapshot));
        CHECK(memory.next(Sequence{1}) == Position{4});
        REQUIRE(memory.restore(Sequence{2}, later, Position{4}));
        CHECK(begins(0, 4, 2));
        CHECK(begins(1, 4, 2));
        CHECK(begins(2, 4, 2));
        CHECK(memory.member<Chunks>().tokens(Sequence{2}) == 2);
        CHECK(memory.member<Far>().tokens(Sequence{2}) == 6);
    }
}

TEST_CASE("a prefix that ends at the start of a chunk is attached, though nothing of it is kept") {
    auto cache = chunks();
    PrefixTree tree{cache};
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    REQUIRE(cache.rewind(Sequence{0}, Position{4}));
    REQUIRE(tree.insert(Sequence{0}, std::span{tokens}.first(4)));
    CHECK(tree.attach(Sequence{1}, tokens).value().length == 4);
    CHECK(goes_on_at_4(cache, 1));
    CHECK(tree.match(std::span{tokens}.first(3)).length == 0);
}

} // namespace test_chunk_starts
