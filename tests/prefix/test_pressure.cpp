// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a prefix tree evicts for want of room, and in which order.
#include "reader.hpp"
#include <cellar/cache/audit.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace test_pressure {

using namespace cellar;
using namespace prefix_test;

namespace {

/// The n-th of several lists of 10 tokens that have nothing in common.
List topic(int n) {
    return counted(1000 * n, 10);
}

/// Inserts lists, computed by sequence 0, which then leaves.
template <class M>
void insert(PrefixTree<M>& tree, const std::vector<List>& lists) {
    for (const List& list : lists) {
        CHECK(tree.attach(Sequence{0}, list).value().length < static_cast<std::int32_t>(list.size()));
        REQUIRE(compute(tree, 0, list));
        REQUIRE(tree.insert(Sequence{0}, list));
        leave(tree, 0);
        REQUIRE(audit(tree) == "");
    }
}

template <class M>
std::vector<int> topics_in(const PrefixTree<M>& tree, int count) {
    std::vector<int> found;
    for (int n = 0; n < count; ++n)
        if (tree.match(topic(n)).length == 10) found.push_back(n);
    return found;
}

/// A memory of one's own, which does not say what its snapshots take.
struct Silent : toy::Full {
    using toy::Full::Full;
    void frees_cells() = delete;
    void occupied_bytes() = delete;
};

} // namespace

TEST_CASE("a full memory evicts what was not used for the longest time") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(1), topic(2), topic(3)});
    CHECK(memory.statistics().free == 0);
    CHECK(tree.attach(Sequence{1}, topic(0)).value().length == 10); // used, and not in use any more
    leave(tree, 1);
    REQUIRE(compute(tree, 2, topic(7)));
    CHECK(topics_in(tree, 4) == std::vector{0, 2, 3});
    CHECK(tree.statistics().evictions == 1);
    REQUIRE(compute(tree, 2, topic(7) + List{1}));
    CHECK(topics_in(tree, 4) == std::vector{0, 3});
    CHECK(audit(tree) == "");
    CHECK(audit(memory) == "");
}

TEST_CASE("begin refuses when nothing is left to evict") {
    toy::Full memory = full(20);
    PrefixTree tree{memory};
    insert(tree, {topic(0)});
    REQUIRE(compute(tree, 1, topic(1) + topic(2)));
    CHECK(tree.statistics().snapshots == 0);
    CHECK(tree.begin(BatchBuilder{Sequence{1}, Position{20}}).error() == Reason::full);
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{3}}).error() == Reason::not_next);
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{0}, 9}).error() == Reason::batch_too_long);
    CHECK(audit(tree) == "");
}

TEST_CASE("other refusals of begin evict nothing") {
    toy::Full memory = full(20);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(1)});
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{3}}).error() == Reason::not_next);
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{0}, 9}).error() == Reason::batch_too_long);
    CHECK(tree.statistics().evictions == 0);
}

TEST_CASE("a prefix that sequences have too is not evicted, because that would free nothing") {
    toy::Full memory = full(30);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(1)});
    CHECK(tree.attach(Sequence{1}, topic(0)).value().length == 10);
    REQUIRE(compute(tree, 2, topic(5) + topic(6)));
    CHECK(topics_in(tree, 2) == std::vector{0}); // though it is the one that was used earlier
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{20}}).error() == Reason::full);
    CHECK(topics_in(tree, 2) == std::vector{0});
    leave(tree, 1);
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{20}}));
    CHECK(topics_in(tree, 2).empty());
}

TEST_CASE("prefixes that own the same cells are evicted together, if none frees any alone") {
    toy::Full memory = full(16);
    PrefixTree tree{memory};
    REQUIRE(compute(tree, 0, topic(0)));
    for (const std::uint64_t salt : {1U, 2U}) REQUIRE(tree.insert(Sequence{0}, topic(0), salt));
    leave(tree, 0);
    CHECK(memory.statistics().free == 6);
    REQUIRE(compute(tree, 1, topic(3) + List{1, 2}));
    CHECK(tree.statistics().snapshots == 0);
    CHECK(audit(tree) == "");
    CHECK(audit(memory) == "");
}

TEST_CASE("of prefixes that free cells only together, as few as possible are evicted, and the less useful ones") {
    toy::Full memory = full(48);
    PrefixTree tree{memory};
    for (const int n : {0, 1, 2, 3}) {
        REQUIRE(compute(tree, n, topic(n)));
        REQUIRE(tree.insert(Sequence{n}, topic(n), 1));
    }
    for (const int n : {1, 2, 0}) REQUIRE(tree.insert(Sequence{n}, topic(n), 2)); // used last
    for (const int n : {0, 1, 2}) leave(tree, n);                                 // sequence 3 keeps its cells
    CHECK(memory.statistics().free == 8);
    REQUIRE(compute(tree, 0, topic(7)));
    CHECK(tree.statistics().evictions == 2);
    CHECK(tree.match(topic(1), 1).length == 0);
    CHECK(tree.match(topic(1), 2).length == 0);
    for (const int n : {0, 2, 3}) CHECK(tree.match(topic(n), 1).length == 10);
    CHECK(audit(tree) == "");
}

TEST_CASE("if prefixes free nothing together either, none is evicted") {
    toy::Full memory = full(30);
    PrefixTree tree{memory};
    REQUIRE(compute(tree, 0, topic(0)));
    for (const std::uint64_t salt : {1U, 2U}) REQUIRE(tree.insert(Sequence{0}, topic(0), salt));
    const CellSnapshot own = memory.snapshot(Sequence{0}).value(); // not the tree's
    leave(tree, 0);
    REQUIRE(compute(tree, 1, topic(1)));
    for (const std::uint64_t salt : {1U, 2U}) REQUIRE(tree.insert(Sequence{1}, topic(1), salt));
    const PrefixPin pin = tree.pin(topic(1), 1);
    leave(tree, 1);
    REQUIRE(compute(tree, 2, topic(2)));
    CHECK(tree.begin(BatchBuilder{Sequence{2}, Position{10}}).error() == Reason::full);
    CHECK(tree.statistics().evictions == 0);
    CHECK(tree.statistics().snapshots == 4);
    CHECK(own.tokens() == 10);
    CHECK(audit(memory) == "");
}

TEST_CASE("a prefix is evicted for a removal that would have to copy the cells that it shares with the sequence") {
    using Rotating = Cache<StandardV<float>, FullCausal, RopeShift<Neox>>;
    Rotating memory{{.layers = 1, .kv_heads = 1, .head_dim = 2},
                    {.sequences = 2, .cells = 14, .batch = 14},
                    {},
                    RopeShift<Neox>{rope_frequencies(2)}};
    PrefixTree tree{memory};
    {
        auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 10}).value();
        pass.put(0, std::vector<float>(20, 1.0F), std::vector<float>(20, 1.0F));
        pass.commit();
    }
    REQUIRE(tree.insert(Sequence{0}, topic(0)));
    const Result<void> refused = memory.remove(Sequence{0}, Position{0}, Position{2});
    REQUIRE(refused.error() == Reason::full);
    CHECK(refused.error().sequence == Sequence{0});
    CHECK(memory.next(Sequence{0}) == Position{10});
    CHECK(tree.begin(BatchBuilder{Sequence{1}, Position{0}, 5}).error()
          == Reason::full); // the sequence has its cells, too
    REQUIRE(tree.make_room(refused.error()));
    CHECK(tree.statistics().evictions == 1);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, Position{2}));
    CHECK(memory.next(Sequence{0}) == Position{8});
    CHECK(audit(tree) == "");
    CHECK(audit(memory) == "");
}

TEST_CASE("a prefix of a memory that does not say what it takes is a byte, and is evicted if room is lacking") {
    Silent memory{CacheShape{.layers = 2, .kv_heads = 1, .head_dim = 1},
                  CacheLimits{.sequences = 4, .cells = 30, .batch = 8}};
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(1), topic(2)});
    CHECK(tree.statistics().in_place_bytes == 3);
    REQUIRE(compute(tree, 1, topic(5)));
    CHECK(topics_in(tree, 3) == std::vector{1, 2});
}

TEST_CASE("a hybrid with a hybrid as its member makes room where a member of that one is full") {
    struct First : toy::Full {
        using toy::Full::Full;
    };
    struct Second : toy::Full {
        using toy::Full::Full;
    };
    using Inner = Hybrid<Repeat<First, Second>, First, Second>;
    using Outer = Hybrid<LayerList<toy::Sliding, toy::Full, Times<2, Inner>>, toy::Sliding, toy::Full, Inner>;
    const CacheShape one{.layers = 1, .kv_heads = 1, .head_dim = 1};
    const CacheLimits roomy{.sequences = 2, .cells = 64, .batch = 8};
    const CacheLimits small{.sequences = 2, .cells = 8, .batch = 8};
    for (const bool first : {false, true}) {
        Outer memory{4, toy::Sliding{one, roomy}, toy::Full{one, roomy},
                     Inner{2, First{one, first ? small : roomy}, Second{one, first ? roomy : small}}};
        PrefixTree tree{memory};
        {
            auto pass = tree.begin(BatchBuilder{Sequence{0}, Position{0}, 8}).value();
            pass.of<toy::Sliding>().mark_put(0);
            pass.of<toy::Full>().mark_put(0);
            for (const int layer : {0, 1})
                pass.of<Inner>().visit(layer, [](auto& of_member, int l) { of_member.mark_put(l); });
            pass.commit();
        }
        REQUIRE(tree.insert(Sequence{0}, counted(0, 8)));
        REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
        CHECK(tree.begin(BatchBuilder{Sequence{1}, Position{0}, 4}).has_value());
        CHECK(tree.statistics().nodes == 0);
    }
}

TEST_CASE("no prefix is evicted for the full member of a hybrid that is a member, if none has cells there") {
    using Inner = Hybrid<Repeat<toy::Full, toy::Sliding>, toy::Full, toy::Sliding>;
    using Outer = Hybrid<Repeat<Inner>, Inner>;
    const CacheShape one{.layers = 1, .kv_heads = 1, .head_dim = 1};
    Outer memory{2, Inner{2, toy::Full{one, {.sequences = 2, .cells = 24, .batch = 8}},
                          toy::Sliding{one, {.sequences = 2, .cells = 64, .batch = 8}}}};
    PrefixTree tree{memory};
    for (int end = 8; end <= 24; end += 8) {
        {
            auto pass = tree.begin(Sequence{0}, 8).value();
            for (const int layer : {0, 1})
                pass.visit(layer, [](auto& inner, int own) {
                    inner.visit(own, [](auto& of_member, int l) { of_member.mark_put(l); });
                });
            pass.commit();
        }
        REQUIRE(tree.insert(Sequence{0}, counted(0, end))); // owns cells of a window alone, once that has moved on
    }
    const auto refused = tree.begin(Sequence{1}, 4);
    REQUIRE(refused.error() == Reason::full);
    CHECK(refused.error().member == 0);
    CHECK(refused.error().inner == 0);
    CHECK(tree.statistics().evictions == 0);
    CHECK(tree.statistics().snapshots == 3);
}

TEST_CASE("a prefix that comes back in place leaves the schedules of the sequence") {
    for (const bool is_offloaded : {false, true}) {
        toy::Sliding memory{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .cells = 40, .batch = 40}};
        PrefixTree tree{memory, {.offloaded_bytes = 100000}};
        REQUIRE(compute(tree, 0, counted(0, 10)));
        REQUIRE(tree.insert(Sequence{0}, counted(0, 10)));
        leave(tree, 0);
        if (is_offloaded)
            REQUIRE(tree.begin(BatchBuilder{Sequence{2}, Position{0}, 40}).has_value()); // needs all cells
        CHECK((tree.statistics().offloaded > 0) == is_offloaded);
        REQUIRE(memory.schedule(Sequence{1}, Position{10}));
        REQUIRE(compute(tree, 1, counted(0, 20)));
        REQUIRE(tree.insert(Sequence{1}, counted(0, 20)));
        CHECK(tree.statistics().offloaded == 0);
        CHECK(memory.snapshot(Sequence{1}, Position{0}, Position{10}).has_value());
    }
}

TEST_CASE("a snapshot where two lists part leaves the schedule of the sequence there") {
    toy::Sliding memory{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .cells = 80, .batch = 40}};
    PrefixTree tree{memory};
    REQUIRE(compute(tree, 0, counted(0, 12)));
    REQUIRE(tree.insert(Sequence{0}, counted(0, 12)));
    REQUIRE(memory.schedule(Sequence{1}, Position{6}));
    REQUIRE(compute(tree, 1, counted(0, 6) + counted(50, 20)));
    REQUIRE(tree.insert(Sequence{1}, counted(0, 6) + counted(50, 20)));
    CHECK(tree.match(counted(0, 6)).length == 6); // the tree keeps one at 6
    CHECK(memory.snapshot(Sequence{1}, Position{0}, Position{6}).has_value());
}

TEST_CASE("a prefix is not evicted before the longer ones that need it") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(0) + counted(50, 10), topic(0) + counted(70, 10)});
    CHECK(tree.evict());
    CHECK(tree.match(topic(0) + counted(50, 10)).length == 10);
    CHECK(tree.match(topic(0) + counted(70, 10)).length == 20);
    CHECK(tree.evict());
    CHECK(tree.match(topic(0) + counted(70, 10)).length == 10);
    CHECK(tree.evict());
    CHECK_FALSE(tree.evict());
    CHECK(memory.statistics().free == 40);
}

TEST_CASE("a recurrent state is evicted although longer prefixes were computed from it") {
    toy::Recurrent memory = recurrent(10);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(0) + counted(50, 10), topic(0) + counted(70, 10)});
    CHECK(tree.evict()); // the second was inserted later than the first was used, the third too
    CHECK(tree.match(topic(0) + counted(50, 10)).length == 10);
    CHECK(tree.evict());
    CHECK(tree.match(topic(0)) == PrefixMatch{0, 10});
    CHECK(tree.match(topic(0) + counted(70, 10)).length == 20);
    CHECK(audit(tree) == "");
}

TEST_CASE("a pinned prefix stays, and with it what it needs") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(0) + counted(50, 10), topic(1), topic(2)});
    std::optional<PrefixPin> pin = tree.pin(topic(0) + counted(50, 10));
    CHECK(pin->length() == 20);
    CHECK(audit(tree) == "");
    CHECK(tree.begin(BatchBuilder{Sequence{1}, Position{0}, 8}));
    tree.clear();
    CHECK(tree.match(topic(0) + counted(50, 10)).length == 20);
    CHECK(tree.statistics().snapshots == 2);
    CHECK(audit(tree) == "");
    pin.reset();
    CHECK(audit(tree) == "");
    tree.clear();
    CHECK(tree.statistics().snapshots == 0);
    CHECK(memory.statistics().free == 40);
}

TEST_CASE("pins can be moved, and each counts") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(1)});
    PrefixPin first = tree.pin(topic(0));
    PrefixPin second = tree.pin(topic(0));
    PrefixPin third = tree.pin(topic(0) + topic(1)); // as long as there is something
    CHECK(third.length() == 10);
    PrefixPin none = tree.pin(topic(5));
    CHECK(none.length() == 0);
    PrefixPin moved{std::move(second)};
    none = std::move(first);
    CHECK(none.length() == 10);
    CHECK(audit(tree) == "");
    PrefixPin& itself = none;
    none = std::move(itself);
    CHECK(none.length() == 10);
    third.release();
    third.release();
    CHECK(third.length() == 0);
    none = tree.pin(topic(1));
    CHECK(audit(tree) == "");
    moved.release();
    tree.clear();
    CHECK(topics_in(tree, 2) == std::vector{1});
    CHECK(audit(tree) == "");
}

TEST_CASE("a pinned prefix may be divided") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    insert(tree, {topic(0)});
    const PrefixPin pin = tree.pin(first(5, topic(0)));
    CHECK(pin.length() == 5);
    insert(tree, {first(7, topic(0)) + List{5}});
    tree.clear();
    CHECK(tree.match(topic(0)).length == 10); // all of the snapshot that the prefix is in
    CHECK(audit(tree) == "");
}

TEST_CASE("tokens for each byte: a long prefix is worth more than a short one") {
    // A state is as large after few tokens as after many.
    toy::Recurrent memory = recurrent(3);
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte}};
    insert(tree, {counted(0, 40), counted(100, 3), counted(200, 5)});
    insert(tree, {counted(300, 20)});
    CHECK(tree.match(counted(0, 40)).length == 40); // the one that was not used for the longest time
    CHECK(tree.match(counted(100, 3)).length == 0);
    insert(tree, {counted(400, 6)});
    CHECK(tree.match(counted(200, 5)).length == 0);
    CHECK(tree.match(counted(0, 40)).length == 40);
}

TEST_CASE("tokens for each byte: what was not used for long is evicted all the same") {
    toy::Recurrent memory = recurrent(2);
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte}};
    insert(tree, {counted(0, 40)});
    for (int i = 0; tree.match(counted(0, 40)).length == 40; ++i) {
        REQUIRE(i < 10);
        insert(tree, {counted(100 + 10 * i, 9)});
    }
    CHECK(tree.statistics().evictions == 5);
}

TEST_CASE("tokens for each byte: a prefix is worth more when a shorter one is evicted") {
    toy::Recurrent memory = recurrent(3);
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte}};
    insert(tree, {counted(0, 10), counted(0, 14), counted(100, 12)});
    CHECK(tree.evict()); // the last 4 of 14 tokens
    CHECK(tree.match(counted(0, 14)) == PrefixMatch{10, 10});
    insert(tree, {counted(0, 14)}); // worth 4 + 4, where the last one that was evicted was worth 4
    CHECK(tree.evict());            // the one of 4 is worth 8, that of 10 is worth 10, and 12
    CHECK(tree.match(counted(0, 14)) == PrefixMatch{10, 10});
}

TEST_CASE("tokens for each byte: what is left of a chat is worth all of its tokens") {
    toy::Recurrent memory = recurrent(3);
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte}};
    insert(tree, {counted(0, 3), counted(0, 8), counted(100, 6)}); // worth 3, 5 and 6
    CHECK(tree.evict());
    CHECK(tree.match(counted(0, 3)) == PrefixMatch{0, 3});
    CHECK(tree.evict()); // the second is worth 8 by now
    CHECK(tree.match(counted(0, 8)) == PrefixMatch{8, 8});
    CHECK(tree.match(counted(100, 6)) == PrefixMatch{0, 0});
}

TEST_CASE("tokens for each byte: what is left of a prefix that is divided is worth its own tokens") {
    toy::Recurrent memory = recurrent(3);
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte}};
    insert(tree, {counted(0, 40), first(35, counted(0, 40)), counted(100, 10)});
    CHECK(tree.evict()); // the last 5 of 40 tokens
    CHECK(tree.match(counted(0, 40)) == PrefixMatch{35, 35});
    CHECK(tree.match(counted(100, 10)).length == 10);
}

TEST_CASE("a prefix is worth less when a shorter one is kept") {
    const Usefulness tokens = [](const PrefixUse& use) noexcept { return static_cast<double>(use.tokens); };
    const List common = counted(0, 10);
    for (const int kept : {10, 8}) { // where the two part, and within what they share
        toy::Recurrent memory = recurrent(4);
        PrefixTree tree{memory, {.usefulness = tokens}};
        insert(tree, {common + List{1, 2, 3}, common + List{7, 8, 9}, counted(100, 6)}); // worth 13, 13 and 6
        insert(tree, {first(kept, common)});
        CHECK(tree.evict()); // the first two are worth 3 or 5 by now
        CHECK(tree.evict());
        CHECK(tree.match(counted(100, 6)).length == 6);
        CHECK(tree.match(common).length == kept);
        CHECK(audit(tree) == "");
    }
}

TEST_CASE("usefulness is weighed by what is known of a prefix") {
    static std::vector<PrefixUse> asked;
    const Usefulness record = [](const PrefixUse& use) noexcept {
        asked.push_back(use);
        return least_recently_used(use);
    };
    const auto check = [](std::int32_t tokens, std::int64_t bytes) {
        CHECK(asked.back().tokens == tokens);
        CHECK(asked.back().bytes == bytes);
        CHECK(asked.back().floor == 0);
    };
    toy::Full cache = full(40); // two layers with a key and a value of four bytes
    PrefixTree tree{cache, {.usefulness = record}};
    insert(tree, {topic(0)});
    check(10, 160);
    insert(tree, {topic(0) + counted(50, 5)});
    CHECK(asked.size() == 4); // inserted, attached, and with the second one
    CHECK(asked[2].tokens == 5);
    CHECK(asked[2].bytes == 80);
    check(10, 160);
    toy::Memory memory = hybrid(10);
    PrefixTree other{memory, {.usefulness = record}};
    insert(other, {topic(0)});
    check(10, 160 + 6 * 32 + toy::Recurrent::bytes_per_sequence(memory.member<toy::Recurrent>().shape()));
}

TEST_CASE("a usefulness that is not a number is the smallest") {
    toy::Full memory = full(100);
    const auto usefulness = [](const PrefixUse& use) noexcept {
        return use.last_used % 2 == 0 ? static_cast<double>(use.last_used) : std::nan("");
    };
    PrefixTree tree{memory, {.usefulness = usefulness}};
    insert(tree, {topic(0), topic(1), topic(2), topic(3)});
    CHECK(audit(tree) == "");
    while (tree.evict()) CHECK(audit(tree) == "");
    CHECK(topics_in(tree, 4).empty());
}

TEST_CASE("room can be made for other operations than begin") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    REQUIRE(compute(tree, 0, topic(9)));
    CellSnapshot parked = memory.snapshot(Sequence{0}).value();
    memory.offload(parked);
    leave(tree, 0);
    insert(tree, {topic(0), topic(1), topic(2), topic(3)});
    CHECK_FALSE(tree.make_room({Reason::cannot_resume}));
    CHECK(topics_in(tree, 4) == std::vector{0, 1, 2, 3});
    Result<void> restored = memory.restore(Sequence{1}, parked);
    CHECK(restored.error() == Reason::full);
    while (!restored && tree.make_room(restored.error())) restored = memory.restore(Sequence{1}, parked);
    CHECK(restored.has_value());
    CHECK(memory.next(Sequence{1}) == Position{10});
    CHECK(topics_in(tree, 4) == std::vector{1, 2, 3});
    tree.clear();
    CHECK_FALSE(tree.make_room({Reason::full}));
}

TEST_CASE("a hybrid evicts prefixes when one of its members is full") {
    toy::Memory memory = hybrid(10, 40);
    PrefixTree tree{memory};
    insert(tree, {topic(0), topic(1), topic(2), topic(3)});
    CHECK(memory.member<toy::Full>().statistics().free == 0);
    CHECK(tree.attach(Sequence{1}, topic(0)).value().length == 10);
    REQUIRE(compute(tree, 2, topic(7) + topic(8)));
    CHECK(topics_in(tree, 4) == std::vector{0, 3});
    REQUIRE(compute(tree, 3, topic(9)));
    CHECK(topics_in(tree, 4) == std::vector{0});
    // Its window and its state have memory of their own, but its cells in the full member are not the tree's alone.
    CHECK(tree.begin(BatchBuilder{Sequence{3}, Position{10}}).error() == Refusal{Reason::full, 1});
    CHECK(topics_in(tree, 4) == std::vector{0});
}

TEST_CASE("windows that overlap are evicted one after another") {
    toy::Sliding memory = sliding(20, 6);
    PrefixTree tree{memory};
    List list = counted(0, 10);
    REQUIRE(compute(memory, 0, list));
    for (int i = 0; i < 4; ++i) { // each owns six cells, of which the next one has five
        REQUIRE(tree.insert(Sequence{0}, list));
        list.push_back(50 + i);
        REQUIRE(compute(memory, 0, list));
    }
    leave(tree, 0);
    CHECK(memory.statistics().free == 20 - 9);
    REQUIRE(compute(tree, 1, counted(100, 30)));
    REQUIRE(compute(tree, 2, counted(200, 30)));
    REQUIRE(compute(tree, 3, counted(300, 8)));
    CHECK(tree.statistics().snapshots == 0);
    CHECK(tree.statistics().evictions == 4);
    CHECK(audit(tree) == "");
}

TEST_CASE("a longer prefix that frees nothing goes if a shorter one that it needs frees cells") {
    toy::Full memory = full(50);
    PrefixTree tree{memory};
    serve(tree, 0, counted(0, 20));
    leave(tree, 0);
    REQUIRE(tree.attach(Sequence{1}, counted(0, 20)).value().length == 20);
    REQUIRE(compute(tree, 1, counted(0, 22)));
    auto parked = park(memory, Sequence{1}).value(); // it comes back to cells of its own
    REQUIRE(unpark(memory, Sequence{1}, parked));
    REQUIRE(tree.insert(Sequence{1}, counted(0, 22)));
    REQUIRE(memory.free_cells() == 8);
    REQUIRE(tree.evictable() == 20);
    {
        const PrefixPin pin = tree.pin(counted(0, 22));
        CHECK(tree.evictable() == 0);
        CHECK_FALSE(compute(tree, 2, counted(500, 16)));
        CHECK(tree.statistics().evictions == 0);
        leave(tree, 2);
    }
    CHECK(compute(tree, 2, counted(500, 28))); // as many as are free, or can be
    CHECK(tree.statistics().evictions == 2);
    CHECK(memory.free_cells() == 0);
    CHECK(lacks(memory, 1, counted(0, 22)) == "");
    CHECK(audit(tree) == "");
}

} // namespace test_pressure
