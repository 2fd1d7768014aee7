// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The questions of a scheduler: what is free, what a batch needs, and what a sequence would give back.
#include "../allocation_count.hpp"
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/memory/park.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_room {

using namespace cellar;
using numbers::feed;
using numbers::prompt;

namespace {

struct Count : StateTensor<1> {};

constexpr Sequence alice{0};
constexpr Sequence bob{1};

numbers::Cache<> pool(std::int32_t cells) {
    return numbers::Cache<>{numbers::small, {.sequences = 3, .cells = cells, .batch = 8}};
}

/// Random operations on a small cache, compared after each with what the questions said before.
template <class Window>
class History {
public:
    History(unsigned seed, bool shares)
        : shares_{shares}, random_{seed}, cache_{numbers::small, {.sequences = users, .cells = 70, .batch = 6}} {}

    void run(int steps) {
        for (int step = 0; step < steps; ++step) {
            CAPTURE(step);
            change();
            check();
        }
    }

private:
    static constexpr int users = 4;
    static constexpr int most = 4 + 6; ///< what the window keeps, one more since users may go back, and a batch

    int below(int n) { return std::uniform_int_distribution<int>{0, n - 1}(random_); }
    Sequence anyone() { return Sequence{below(users)}; }

    // Two users' tokens, one after the other.
    BatchBuilder batch() {
        const Sequence a = anyone();
        const Sequence b{(a.value + 1 + below(users - 1)) % users};
        BatchBuilder tokens{a, cache_.next(a), below(4)};
        tokens.add(b, cache_.next(b), below(4));
        return tokens;
    }

    void change() {
        const Sequence s = anyone();
        const int operation = below(shares_ ? 12 : 9);
        if (operation < 5) return open(batch(), operation != 0);
        if (operation == 5) return promise(s, below(25));
        if (operation == 6) return back(s);
        if (operation == 7) return leave(s);
        if (operation == 8) return promise(s, most);
        if (operation == 9) return static_cast<void>(cache_.copy_prefix(s, anyone(), Position{below(30)}).has_value());
        if (operation == 10) return keep(s);
        if (!kept_.empty()) kept_.pop_back();
    }

    void open(const BatchBuilder& tokens, bool commits) {
        const bool fits = cache_.cells_needed(tokens) <= cache_.free_cells();
        auto pass = cache_.begin(tokens);
        if (!pass && pass.error() != Reason::full) return;
        REQUIRE(pass.has_value() == fits);
        if (!pass || !commits) return;
        const std::vector<float> rows(static_cast<std::size_t>(2 * tokens.size()));
        const std::vector<float> values(static_cast<std::size_t>(tokens.size()));
        pass->put(0, rows, values);
        pass->commit();
    }
    void promise(Sequence s, int tokens) {
        const int before = cache_.promised(s);
        const int cells = std::is_same_v<Window, FullCausal> ? tokens : std::min(tokens, most);
        const bool fits = cells - before <= cache_.free_cells();
        const auto made = cache_.promise(s, tokens);
        REQUIRE(made.has_value() == fits);
        REQUIRE(cache_.promised(s) == (made ? cells : before));
    }
    void back(Sequence s) {
        const Position to{std::max(0, cache_.next(s).value - below(5))};
        if (cache_.can_resume(s, to)) static_cast<void>(cache_.remove(s, to, to_end).has_value());
    }
    void leave(Sequence s) {
        const int free = cache_.free_cells();
        const int freed = cache_.cells_freed_by(s);
        REQUIRE(cache_.remove(s, Position{0}, to_end));
        REQUIRE(cache_.free_cells() == free + freed);
    }
    void keep(Sequence s) {
        auto made = cache_.snapshot(s);
        if (made && kept_.size() < 4) kept_.push_back(*std::move(made));
    }

    void check() {
        int promised = 0;
        for (int s = 0; s < users; ++s) {
            const int own = cache_.promised(Sequence{s});
            promised += own;
            if (own == 0 || !cache_.can_resume(Sequence{s}, cache_.next(Sequence{s}))) continue;
            REQUIRE(cache_.begin(BatchBuilder{Sequence{s}, cache_.next(Sequence{s}), std::min(own, 6)}));
            REQUIRE(cache_.promised(Sequence{s}) == own);
        }
        REQUIRE(cache_.free_cells() >= 0);
        REQUIRE(cache_.free_cells() + promised == cache_.statistics().free);
        REQUIRE(audit(cache_) == "");
    }

    bool shares_;
    std::mt19937 random_;
    cellar::Cache<StandardV<float>, Window> cache_;
    std::vector<CellSnapshot> kept_; // after the cache
};

} // namespace

TEST_CASE("begin refuses a batch with full if and only if it needs more cells than are free") {
    auto cache = pool(10);
    CHECK(cache.free_cells() == 10);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7}));
    CHECK(cache.free_cells() == 3);
    const BatchBuilder fits{bob, Position{0}, 3};
    const BatchBuilder is_too_long{bob, Position{0}, 4};
    CHECK(cache.cells_needed(fits) == 3);
    CHECK(cache.cells_needed(is_too_long) == 4);
    const auto refused = cache.begin(is_too_long);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(refused.error().needed == 4);
    CHECK(refused.error().available == 3);
    CHECK(cache.begin(fits));
    CHECK(cache.free_cells() == 3); // the pass was dropped
}

TEST_CASE("a sequence frees the cells that nothing else owns") {
    auto cache = pool(20);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7}));
    CHECK(cache.cells_freed_by(alice) == 7);
    CHECK(cache.cells_freed_by(bob) == 0);
    REQUIRE(cache.copy_prefix(alice, bob, Position{4}));
    feed(cache, prompt(1, 4, {8, 9}));
    CHECK(cache.cells_freed_by(alice) == 3);
    CHECK(cache.cells_freed_by(bob) == 2);
    const auto kept = cache.snapshot(alice).value();
    CHECK(cache.cells_freed_by(alice) == 0);
    const Cell free = cache.free_cells();
    REQUIRE(cache.remove(bob, Position{0}, to_end));
    CHECK(cache.free_cells() == free + 2);
}

TEST_CASE("begin keeps a promise, and nothing else takes what was promised") {
    auto cache = pool(20);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5}));
    REQUIRE(cache.promise(alice, 9));
    CHECK(cache.promised(alice) == 9);
    CHECK(cache.free_cells() == 6);
    CHECK(cache.cells_freed_by(alice) == 14);
    CHECK(cache.statistics().free == 15);
    const BatchBuilder seven{bob, Position{0}, 7};
    CHECK(cache.cells_needed(seven) == 7);
    CHECK(cache.begin(seven).error() == Reason::full);
    feed(cache, prompt(1, 0, {1, 2, 3, 4, 5, 6}));
    CHECK(cache.free_cells() == 0);
    CHECK(cache.begin(BatchBuilder{bob, Position{6}}).error() == Reason::full);
    const BatchBuilder eight{alice, Position{5}, 8};
    CHECK(cache.cells_needed(eight) == 0);
    feed(cache, prompt(0, 5, {6, 7, 8, 9, 10, 11, 12, 13}));
    feed(cache, prompt(0, 13, {14}));
    CHECK(cache.promised(alice) == 0);
    CHECK(cache.begin(BatchBuilder{alice, Position{14}}).error() == Reason::full);
    CHECK(audit(cache) == "");
}

TEST_CASE("a promise that is refused changes nothing") {
    auto cache = pool(20);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5}));
    REQUIRE(cache.promise(bob, 10));
    const std::string before = numbers::portrait(cache);
    CHECK(cache.promise(alice, 6).error() == Reason::full);
    CHECK(cache.promise(alice, 6).error().sequence == alice);
    CHECK(cache.promise(bob, 16).error() == Reason::full); // 15 are free or its own
    CHECK(cache.promise(bob, 16).error().needed == 16);
    CHECK(cache.promise(bob, 16).error().available == 15);
    CHECK(cache.promised(alice) == 0);
    CHECK(cache.promised(bob) == 10);
    CHECK(cache.free_cells() == 5);
    CHECK(numbers::portrait(cache) == before);
    CHECK(cache.promise(bob, 15));
    CHECK(cache.free_cells() == 0);
    CHECK(cache.promise(bob, 0));
    CHECK(cache.free_cells() == 15);
}

TEST_CASE("what a sequence takes back goes back to its promise, up to its size") {
    auto cache = pool(20);
    REQUIRE(cache.promise(alice, 10));
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    {
        const auto dropped = numbers::begin(cache, prompt(0, 6, {7, 8}));
        CHECK(cache.promised(alice) == 2);
    }
    CHECK(cache.promised(alice) == 4);
    REQUIRE(cache.remove(alice, Position{3}, to_end));
    CHECK(cache.promised(alice) == 7);
    feed(cache, prompt(0, 3, {1, 2, 3, 4, 5, 6, 7, 8})); // one more than was promised
    feed(cache, prompt(0, 11, {1, 2, 3}));
    CHECK(cache.promised(alice) == 0);
    REQUIRE(cache.remove(alice, Position{12}, to_end)); // takes back what was not promised
    CHECK(cache.promised(alice) == 0);
    REQUIRE(cache.remove(alice, Position{0}, to_end)); // and leaves
    CHECK(cache.promised(alice) == 0);
    CHECK(cache.free_cells() == 20);
}

TEST_CASE("a window needs a promise of what it keeps and a batch, and goes on for ever") {
    Cache<StandardV<float>, SlidingWindow<4>> cache{numbers::small, {.sequences = 3, .cells = 25, .batch = 4}};
    REQUIRE(cache.promise(alice, 1'000'000));
    const int size = 5 + 4; // the window, one more since sequences can go back, and a batch
    CHECK(cache.promised(alice) == size);
    feed(cache, prompt(1, 0, {1, 2, 3, 4}));
    const auto kept = cache.snapshot(bob).value();
    feed(cache, prompt(1, 4, {5, 6, 7, 8}));
    REQUIRE(cache.promise(bob, cache.free_cells()));
    CHECK(cache.free_cells() == 0);
    for (int p = 0; p < 100; p += 4) feed(cache, prompt(0, p, {1, 2, 3, 4}));
    CHECK(cache.promised(alice) == 4);
    CHECK(audit(cache) == "");
}

TEST_CASE("a copy of shared cells, and rows that come back, take what was promised to their sequence") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .cells = 12, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    REQUIRE(cache.copy_prefix(alice, bob, Position{6}));
    REQUIRE(cache.promise(bob, 4));
    REQUIRE(cache.promise(alice, 2));
    const auto refused = cache.remove(alice, Position{0}, Position{2}); // four copies in two cells
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(refused.error().needed == 4);
    CHECK(refused.error().available == 2);
    REQUIRE(cache.remove(bob, Position{0}, Position{2}));
    CHECK(cache.promised(bob) == 0);
    CHECK(cache.promised(alice) == 2);
    auto kept = cache.snapshot(bob).value();
    cache.offload(kept);
    REQUIRE(cache.remove(bob, Position{0}, to_end));
    REQUIRE(cache.promise(Sequence{2}, 4));
    CHECK(cache.restore(bob, kept).error() == Reason::full);
    CHECK(cache.reload(kept).error() == Reason::full);
    REQUIRE(cache.restore(Sequence{2}, kept));
    CHECK(cache.promised(Sequence{2}) == 0);
    CHECK(audit(cache) == "");
}

TEST_CASE("in random histories, begin keeps what was promised, and refuses what is not there") {
    for (const unsigned seed : {1U, 2U, 3U}) {
        History<FullCausal>{seed, true}.run(1500);
        History<SlidingWindow<3>>{seed, true}.run(1500);
        History<SlidingWindow<3>>{seed, false}.run(1500);
    }
}

TEST_CASE("a parked sequence gives up its cells, and goes on where it was") {
    auto cache = pool(8);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    auto parked = park(cache, alice).value();
    CHECK(cache.free_cells() == 8);
    CHECK(cache.next(alice) == Position{0});
    feed(cache, prompt(1, 0, {7, 8, 9}));
    CHECK(unpark(cache, Sequence{2}, parked).error() == Reason::full);
    CHECK(parked.tokens() == 6);
    CHECK(cache.next(Sequence{2}) == Position{0});
    REQUIRE(cache.remove(bob, Position{0}, to_end));
    REQUIRE(unpark(cache, Sequence{2}, parked));
    CHECK(numbers::values(cache, 2) == numbers::Values{1, 2, 3, 4, 5, 6});
    CHECK(cache.statistics().offloaded == 0);
}

TEST_CASE("a hybrid promises in all members with cells, or in none") {
    using Full = numbers::Cache<>;
    using Sliding = Cache<StandardV<float>, SlidingWindow<4>>;
    using Recurrent = RecurrentMemory<States<Count>>;
    Hybrid<Repeat<Full, Sliding, Recurrent>, Full, Sliding, Recurrent> memory{
        3, Full{numbers::small, CacheLimits{.sequences = 2, .cells = 20, .batch = 4}},
        Sliding{numbers::small, CacheLimits{.sequences = 2, .cells = 12, .batch = 4}},
        Recurrent{StateShape{1, {{1}}}, StateLimits{.sequences = 2, .batch = 4, .snapshots = 3}}};
    CHECK(memory.free_snapshots() == 3);
    REQUIRE(memory.promise(alice, 8));
    CHECK(memory.member<Full>().promised(alice) == 8);
    CHECK(memory.member<Sliding>().promised(alice) == 8);
    CHECK(memory.free_cells() == 4);
    CHECK(memory.cells_freed_by(alice) == 8);
    const Refusal refused = memory.promise(bob, 5).error();
    CHECK(refused == Reason::full);
    CHECK(refused.member == 1);
    CHECK(memory.member<Full>().promised(bob) == 0);
    BatchBuilder batch{alice, Position{0}, 2};
    batch.add(bob, Position{0}, 2);
    CHECK(memory.cells_needed(batch) == 2);
    CHECK(memory.begin(batch));
}

TEST_CASE("a hybrid answers for the member that lacks room first") {
    using Full = numbers::Cache<>;
    struct Small : Full {
        using Full::Full;
    };
    Hybrid<Repeat<Full, Small>, Full, Small> memory{
        2 * numbers::small.layers, Full{numbers::small, CacheLimits{.sequences = 2, .cells = 20, .batch = 8}},
        Small{numbers::small, CacheLimits{.sequences = 2, .cells = 12, .batch = 8}}};
    CHECK(memory.free_cells() == 12);
    const BatchBuilder batch{alice, Position{0}, 8};
    CHECK(memory.cells_needed(batch) == 8);
    CHECK(memory.cells_freed_by(alice) == 0);
    CHECK(memory.free_snapshots() == INT32_MAX);
}

TEST_CASE("the questions allocate nothing") {
    auto cache = pool(100);
    PrefixTree tree{cache};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    const std::vector<std::int32_t> tokens{1, 2, 3, 4};
    REQUIRE(tree.insert(alice, tokens));
    const PrefixPin pin = tree.pin(tokens);
    const BatchBuilder batch{alice, Position{4}, 2};
    allocations = 0;
    counting = true;
    const std::int32_t sum =
        cache.free_cells() + cache.cells_needed(batch) + cache.cells_freed_by(alice) + tree.evictable();
    counting = false;
    CHECK(sum == 96 + 2 + 0 + 0);
    CHECK(allocations == 0);
}

} // namespace test_room
