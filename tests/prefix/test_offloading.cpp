// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Prefixes that are offloaded when the memory is full, and come back when they are used.
#include "../hybrid/failing_allocations.hpp"
#include "../violations.hpp"
#include "reader.hpp"
#include <cellar/format/blocks.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace test_offloading {

using namespace cellar;
using namespace prefix_test;

namespace {

/// The n-th of several lists of 10 tokens that have nothing in common.
List topic(int n) {
    return counted(1000 * n, 10);
}

constexpr std::int64_t topic_bytes = 160; // in a full cache

/// One after another, each computed by sequence 0, which then leaves.
template <class M>
void serve_all(PrefixTree<M>& tree, const std::vector<List>& lists) {
    for (const List& list : lists) {
        serve(tree, 0, list);
        leave(tree, 0);
        REQUIRE(audit(tree) == "");
    }
}

/// Has s attach this list, and checks that it has these tokens then.
template <class M>
void check_attached(PrefixTree<M>& tree, int s, const List& list, int length) {
    CHECK(tree.attach(Sequence{s}, list).value().length == length);
    CHECK(lacks(tree.memory(), s, first(length, list)) == "");
    CHECK(audit(tree) == "");
}

/// A memory that tells where its snapshots are offloaded to.
template <class M>
struct Told : M {
    explicit Told(M memory) : M{std::move(memory)} {}
    void offload(SnapshotOf<M>& snapshot, OffloadTo to) {
        places.push_back(to);
        M::offload(snapshot, to);
    }
    std::vector<OffloadTo> places;
};

int weighed = 0; ///< calls of count_weighed
double count_weighed(const PrefixUse& use) noexcept {
    ++weighed;
    return least_recently_used(use);
}

/// A tree of a memory that has room for two topics at a time, and for another two, of `bytes` each, outside.
template <class M>
void check_place(M made, std::int64_t bytes, OffloadTo to) {
    Told<M> memory{std::move(made)};
    PrefixTree<Told<M>> tree{memory, {.offloaded_bytes = 2 * bytes, .offload_to = to}};
    serve_all(tree, {topic(0), topic(1), topic(2), topic(3), topic(4)});
    const PrefixStatistics s = tree.statistics();
    CHECK(s.offloads == 3);
    CHECK(s.evictions == 1);
    CHECK(s.offloaded == 2);
    CHECK(s.offloaded_bytes == 2 * bytes);
    CHECK(tree.match(topic(0)).length == 0);
    for (int n = 2; n < 5; ++n) { // topic 1 makes room for the first of them
        check_attached(tree, 1, topic(n), 10);
        leave(tree, 1);
    }
    CHECK(tree.statistics().reloads >= 2);
    CHECK(tree.statistics().evictions == 2);
    CHECK(memory.places == std::vector(static_cast<std::size_t>(tree.statistics().offloads), to));
}

} // namespace

TEST_CASE("prefixes are offloaded to where the limits say, of caches, of states and of hybrids") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend}) {
        const std::int64_t state = toy::Recurrent::bytes_per_sequence({1, {{1}}});
        check_place(full(20), topic_bytes, to);
        check_place(recurrent(2), state, to);
        check_place(hybrid(2), topic_bytes + 6 * 32 + state, to); // a window keeps 6 of the tokens
    }
}

TEST_CASE("a full memory offloads what was not used for the longest time") {
    toy::Full memory = full(20);
    PrefixTree tree{memory, {.offloaded_bytes = 2 * topic_bytes}};
    serve_all(tree, {topic(0), topic(1), topic(2), topic(3)});
    const PrefixStatistics s = tree.statistics();
    CHECK(s.offloads == 2);
    CHECK(s.evictions == 0);
    CHECK(s.snapshots == 4);
    CHECK(s.offloaded == 2);
    CHECK(s.offloaded_bytes == 2 * topic_bytes);
    CHECK(s.in_place_bytes == 2 * topic_bytes);
    CHECK(memory.statistics().offloaded_bytes == s.offloaded_bytes);
    for (int n = 0; n < 4; ++n) CHECK(tree.match(topic(n)).length == 10);
}

/// Computes four topics, one after the other, and inserts each. Calls check() after each.
template <class Memory, class Check>
void insert_topics(PrefixTree<Memory>& tree, Memory& memory, Check check) {
    const std::vector<float> rows(10 * 32, 1.0F);
    for (int n = 0; n < 4; ++n) {
        auto pass = tree.begin(BatchBuilder{Sequence{0}, Position{0}, 10}).value();
        pass.put(0, rows, rows);
        pass.commit();
        tree.insert(Sequence{0}, topic(n)).value();
        memory.remove(Sequence{0}, Position{0}, to_end).value();
        check();
    }
}

TEST_CASE("prefixes that are offloaded in other formats count as what they take there") {
    const auto offload_all = []<class Format>(Format, StoredAs as, std::int64_t limit) {
        Cache<StandardV<Format>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                        {.sequences = 1, .cells = 20, .batch = 10, .offload_as = as}};
        PrefixTree tree{memory, {.offloaded_bytes = limit}};
        insert_topics(tree, memory, [&] { REQUIRE(tree.statistics().offloaded_bytes <= limit); });
        REQUIRE(audit(tree) == "");
        return tree.statistics();
    };
    constexpr std::int64_t of_floats = 10 * 2 * 32 * 4;
    constexpr std::int64_t of_q8_0 = 10 * 2 * 34;
    const PrefixStatistics smaller = offload_all(float{}, stored_as<q8_0>, 2 * of_q8_0);
    CHECK(smaller.offloads == 2);
    CHECK(smaller.evictions == 0);
    CHECK(smaller.offloaded_bytes == 2 * of_q8_0);
    const PrefixStatistics larger = offload_all(q8_0{}, stored_as<float>, of_floats + of_q8_0);
    CHECK(larger.offloads == 2);
    CHECK(larger.evictions == 1);
    CHECK(larger.offloaded_bytes == of_floats);
}

TEST_CASE("a prefix that is offloaded comes back in place when it is attached, and another one makes room for it") {
    toy::Full memory = full(20);
    PrefixTree tree{memory, {.offloaded_bytes = 2 * topic_bytes}};
    serve_all(tree, {topic(0), topic(1), topic(2), topic(3)});
    check_attached(tree, 1, topic(0), 10);
    CHECK(tree.statistics().reloads == 1);
    CHECK(tree.statistics().offloads == 3);  // topic 2
    CHECK(memory.statistics().shared == 10); // the sequence has the cells of the tree
    check_attached(tree, 2, topic(3), 10);
    CHECK(tree.statistics().reloads == 1); // it was in place
    check_attached(tree, 3, topic(2), 0);  // no cell is free, and all are in use
    CHECK(tree.match(topic(2)).length == 10);
    leave(tree, 1);
    check_attached(tree, 3, topic(2), 10);
    CHECK(tree.statistics().evictions == 1); // topic 1: there was no room outside when topic 2 left before topic 0 came
}

TEST_CASE("a chain of prefixes that does not fit in place is restored once, as far as there is room") {
    Counting memory{full(60)};
    PrefixTree tree{memory, {.offloaded_bytes = 100'000}};
    List list;
    for (int n = 0; n < 50; ++n) {
        list.push_back(n);
        REQUIRE(compute(memory, 0, list));
        REQUIRE(tree.insert(Sequence{0}, list));
    }
    leave(tree, 0);
    REQUIRE(compute(tree, 1, counted(1000, 60)));
    REQUIRE(tree.statistics().offloaded == 50);
    REQUIRE(memory.remove(Sequence{1}, Position{35}, to_end));
    memory.restored = 0;
    check_attached(tree, 2, list, 25);
    CHECK(tree.statistics().reloads == 25);
    CHECK(memory.restored < 50 + 5);
}

TEST_CASE("where a chain of prefixes does not fit, its end makes room for its beginning") {
    Attention memory = attention(24, 6, 50);
    PrefixTree tree{memory, {.offloaded_bytes = 100'000}};
    const List list = counted(0, 30);
    REQUIRE(compute(memory, 0, topic(0)));
    REQUIRE(tree.insert(Sequence{0}, topic(0)));
    REQUIRE(compute(memory, 0, list));
    REQUIRE(compute(tree, 1, counted(500, 16))); // where the window of the first ten tokens was
    REQUIRE(tree.statistics().offloads == 1);
    REQUIRE(tree.insert(Sequence{0}, list));
    REQUIRE(tree.statistics().offloaded == 1);
    leave(tree, 0);
    leave(tree, 1);
    REQUIRE(compute(memory, 2, counted(700, 22)));
    REQUIRE(memory.member<toy::Full>().statistics().free == 8);
    check_attached(tree, 3, list, 10);
    CHECK(tree.statistics().reloads == 1);
    CHECK(tree.statistics().offloaded == 1);
}

TEST_CASE("what does not fit outside is evicted, the least useful first") {
    toy::Full memory = full(20);
    PrefixTree tree{memory, {.offloaded_bytes = 2 * topic_bytes}};
    serve_all(tree, {topic(0), topic(1), topic(2), topic(3), topic(4)});
    CHECK(tree.statistics().evictions == 1);
    CHECK(tree.match(topic(0)).length == 0);
    for (int n = 1; n < 5; ++n) CHECK(tree.match(topic(n)).length == 10);

    serve_all(tree, {counted(9000, 17)}); // the two in place go, then there is room
    CHECK(tree.statistics().offloaded_bytes == 2 * topic_bytes);
    CHECK(tree.match(topic(2)).length == 0);
    CHECK(tree.match(topic(4)).length == 10);
    serve_all(tree, {counted(8000, 20)});
    CHECK(tree.statistics().offloaded_bytes <= 2 * topic_bytes); // 17 tokens push out both
    CHECK(tree.match(counted(9000, 17)).length == 17);
    serve_all(tree, {topic(0)});
    CHECK(tree.match(counted(8000, 20)).length == 20);
    CHECK(tree.match(counted(9000, 17)).length == 0);
}

TEST_CASE("a prefix that is larger than all room outside is evicted, and nothing that is offloaded") {
    toy::Full memory = full(20);
    PrefixTree tree{memory, {.offloaded_bytes = topic_bytes}};
    serve_all(tree, {topic(0), counted(5000, 20), topic(1)});
    CHECK(tree.match(topic(0)).length == 10);
    CHECK(tree.match(counted(5000, 20)).length == 0);
    CHECK(tree.statistics().offloaded == 1);
    CHECK(tree.statistics().evictions == 1);
}

TEST_CASE("without bytes for it, nothing is offloaded") {
    toy::Full memory = full(20);
    PrefixTree tree{memory};
    serve_all(tree, {topic(0), topic(1), topic(2)});
    CHECK(tree.statistics().offloads == 0);
    CHECK(tree.statistics().evictions == 1);
    CHECK(memory.statistics().offloaded_bytes == 0);
}

TEST_CASE("a shorter prefix can be offloaded after the longer ones that need it, and is evicted after them") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 3 * topic_bytes}};
    const List long_one = topic(0) + topic(1);
    serve_all(tree, {topic(0), long_one, counted(5000, 30)});
    CHECK(tree.statistics().offloaded == 2);
    CHECK(tree.match(long_one).length == 20);
    CHECK(tree.evict()); // the second part of the long one
    CHECK(tree.match(long_one).length == 10);
    CHECK(tree.evict());
    CHECK(tree.match(long_one).length == 0);
    CHECK(tree.match(counted(5000, 30)).length == 30);
    CHECK(tree.evict());
    CHECK_FALSE(tree.evict());
    CHECK(audit(tree) == "");
}

TEST_CASE("evict does not look at what prefixes that are offloaded need") {
    toy::Full memory = full(100, 2);
    PrefixTree tree{memory, {.usefulness = count_weighed, .offloaded_bytes = 100'000}};
    for (int n = 0; n < 50; ++n) {
        REQUIRE(compute(memory, 0, {n}));
        REQUIRE(tree.insert(Sequence{0}, List{n}));
        REQUIRE(compute(memory, 0, {n, 7}));
        REQUIRE(tree.insert(Sequence{0}, List{n, 7}));
        leave(tree, 0);
    }
    for (int n = 0; n < 50; ++n) {
        CHECK(tree.attach(Sequence{0}, List{n}).value().length == 1);
        leave(tree, 0);
    }
    REQUIRE(compute(tree, 1, counted(1000, 50)));
    REQUIRE(tree.statistics().offloaded == 50);
    weighed = 0;
    for (int n = 0; n < 20; ++n) CHECK(tree.evict());
    CHECK(weighed <= 2 * 20); // the least useful one of each place
    CHECK(audit(tree) == "");
}

TEST_CASE("what prefixes that are offloaded need is evicted with them if there is no room outside") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 100}};
    const List long_one = topic(0) + counted(50, 5);
    serve_all(tree, {topic(0), long_one, counted(5000, 20)});
    CHECK(tree.statistics().offloaded_bytes == 80); // of 5 tokens
    CHECK(tree.match(long_one).length == 15);
    serve_all(tree, {counted(6000, 10)});
    CHECK(tree.match(long_one).length == 0);
    CHECK(tree.statistics().evictions == 2);

    tree.clear();
    serve_all(tree, {topic(0), long_one, counted(5000, 20)});
    const PrefixPin pin = tree.pin(long_one);
    serve_all(tree, {counted(6000, 10)}); // takes the cells of the other one, because a pin keeps these
    CHECK(tree.match(long_one).length == 15);
    CHECK(tree.match(counted(5000, 20)).length == 0);
}

TEST_CASE("what is pinned stays where it is") {
    toy::Full memory = full(20);
    PrefixTree tree{memory, {.offloaded_bytes = 2 * topic_bytes}};
    serve_all(tree, {topic(0), topic(1)});
    const PrefixPin in_place = tree.pin(topic(0));
    serve_all(tree, {topic(2)});
    CHECK(tree.statistics().offloaded == 1);
    const PrefixPin on_host = tree.pin(topic(1));
    serve_all(tree, {topic(3), topic(4), topic(5)});
    CHECK(tree.match(topic(0)).length == 10);
    CHECK(tree.match(topic(1)).length == 10);
    check_attached(tree, 1, topic(1), 10); // it may come back
    CHECK(tree.statistics().reloads == 1);
    tree.clear();
    CHECK(tree.statistics().snapshots == 2);
}

TEST_CASE("a part of a prefix that is offloaded is copied to the sequence alone") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 1000}};
    serve_all(tree, {topic(0), counted(5000, 30)});
    check_attached(tree, 1, first(4, topic(0)), 4);
    CHECK(tree.statistics().reloads == 0);
    CHECK(memory.statistics().shared == 0);
    // It goes on elsewhere. The first part is in place now, and the rest is offloaded.
    const List other = first(4, topic(0)) + counted(70, 3);
    REQUIRE(compute(tree, 1, other));
    REQUIRE(tree.insert(Sequence{1}, other));
    CHECK(audit(tree) == "");
    CHECK(tree.statistics().offloaded == 2); // the other list as well
    CHECK(tree.statistics().offloaded_bytes == topic_bytes * 36 / 10);
    CHECK(tree.statistics().reloads == 0);
    leave(tree, 1);
    check_attached(tree, 2, other, 7);
    check_attached(tree, 3, topic(0), 10);
}

TEST_CASE("a list that ends within a prefix that is offloaded divides it, and has its own part in place") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 1000}};
    serve_all(tree, {topic(0), counted(5000, 30)});
    CHECK(serve(tree, 1, first(4, topic(0))).length == 4);
    CHECK(tree.statistics().snapshots == 3);
    CHECK(tree.statistics().offloaded == 2); // the other list as well
    CHECK(tree.statistics().offloaded_bytes == topic_bytes * 36 / 10);
    CHECK(memory.statistics().shared == 4);
    leave(tree, 1);
    check_attached(tree, 2, topic(0), 10);
}

TEST_CASE("a prefix that is offloaded is divided there if the sequence has forgotten its first part") {
    toy::Sliding memory = sliding(16, 8);
    PrefixTree tree{memory, {.offloaded_bytes = 10'000}};
    serve_all(tree, {counted(0, 8), counted(5000, 13)});
    REQUIRE(tree.statistics().offloaded == 1);
    const std::int64_t bytes = tree.statistics().offloaded_bytes;
    CHECK(tree.attach(Sequence{1}, counted(0, 3)).value().length == 3);
    REQUIRE(compute(tree, 1, counted(0, 3) + counted(70, 13)));
    REQUIRE(tree.insert(Sequence{1}, counted(0, 3) + counted(70, 13)));
    CHECK(audit(tree) == "");
    CHECK(tree.statistics().offloaded >= 2);
    CHECK(tree.statistics().offloaded_bytes >= bytes);
    leave(tree, 1);
    check_attached(tree, 2, counted(0, 3), 3);
    leave(tree, 2);
    check_attached(tree, 2, counted(0, 8), 8);
    leave(tree, 2);
    check_attached(tree, 2, counted(0, 3) + counted(70, 13), 16);
}

TEST_CASE("without memory to divide a prefix that is offloaded, it stays whole") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 1000}};
    serve_all(tree, {topic(0), counted(5000, 30)});
    const List other = first(4, topic(0)) + counted(70, 3);
    REQUIRE(tree.attach(Sequence{1}, other).value().length == 4);
    REQUIRE(compute(tree, 1, other));
    const PrefixStatistics before = tree.statistics();
    const int failures = failures_of([&] { (void)tree.insert(Sequence{1}, other).has_value(); },
                                     [&] {
                                         CHECK(audit(tree) == "");
                                         CHECK(tree.statistics().nodes == before.nodes);
                                         CHECK(tree.statistics().offloaded_bytes == before.offloaded_bytes);
                                     });
    CHECK(failures > 10);
    CHECK(tree.statistics().nodes == before.nodes + 2);
    CHECK(tree.statistics().offloaded_bytes < before.offloaded_bytes);
    CHECK(audit(tree) == "");
}

TEST_CASE("a sequence that has computed a prefix again brings it back without a copy") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 1000}};
    serve_all(tree, {topic(0), counted(5000, 30)});
    REQUIRE(compute(tree, 1, topic(0) + topic(1))); // without asking the tree
    REQUIRE(tree.insert(Sequence{1}, topic(0) + topic(1)));
    CHECK(audit(tree) == "");
    CHECK(tree.statistics().reloads == 1);
    CHECK(memory.statistics().shared == 20);
    leave(tree, 1);
    check_attached(tree, 2, topic(0) + topic(1), 20);
}

TEST_CASE("states are offloaded, and come back into the slots of others") {
    toy::Recurrent memory = recurrent(2);
    PrefixTree tree{memory, {.offloaded_bytes = 1000}};
    serve_all(tree, {topic(0), topic(1), topic(2), topic(3)});
    CHECK(tree.statistics().offloaded == 2);
    for (int n = 0; n < 4; ++n) {
        check_attached(tree, 1, topic(n), 10);
        leave(tree, 1);
    }
    CHECK(tree.statistics().reloads == 4);
    CHECK(tree.statistics().evictions == 0);
}

TEST_CASE("a state that finds no slot is copied to the sequence alone") {
    toy::Recurrent memory = recurrent(1);
    PrefixTree tree{memory, {.offloaded_bytes = 1000}};
    serve_all(tree, {topic(0), topic(1)});
    const PrefixPin pin = tree.pin(topic(1)); // keeps the only slot
    check_attached(tree, 1, topic(0), 10);
    CHECK(tree.statistics().reloads == 0);
    CHECK(tree.statistics().hits == 1);
}

TEST_CASE("a hybrid's prefixes are offloaded when one of its members is full, and come back in all") {
    toy::Memory memory = hybrid(10, 20);
    PrefixTree tree{memory, {.offloaded_bytes = 10'000}};
    serve_all(tree, {topic(0), topic(1), topic(2), topic(3)});
    CHECK(tree.statistics().offloaded == 2);
    CHECK(tree.statistics().offloaded_bytes == tree.statistics().in_place_bytes);
    check_attached(tree, 1, topic(0), 10);
    CHECK(tree.statistics().reloads == 1);
}

TEST_CASE("tokens for each byte: of what is offloaded, too, what saves little is evicted first") {
    toy::Recurrent memory = recurrent(1);
    const std::int64_t state = toy::Recurrent::bytes_per_sequence(memory.shape());
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte, .offloaded_bytes = 2 * state}};
    serve_all(tree, {counted(0, 40), counted(100, 3), counted(200, 20)});
    serve_all(tree, {counted(300, 10)});
    CHECK(tree.match(counted(0, 40)).length == 40);
    CHECK(tree.match(counted(100, 3)).length == 0);
    CHECK(tree.match(counted(200, 20)).length == 20);
}

TEST_CASE("tokens for each byte: a prefix that saves less than what is offloaded does not push that out") {
    toy::Recurrent memory = recurrent(1);
    const std::int64_t state = toy::Recurrent::bytes_per_sequence(memory.shape());
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte, .offloaded_bytes = 2 * state}};
    serve_all(tree, {counted(0, 40), counted(200, 20), counted(100, 3), counted(300, 10)});
    CHECK(tree.match(counted(0, 40)).length == 40);
    CHECK(tree.match(counted(200, 20)).length == 20);
    CHECK(tree.match(counted(100, 3)).length == 0);
    CHECK(tree.statistics().evictions == 1);
}

TEST_CASE("tokens for each byte: what is to be offloaded is weighed by the bytes that it takes there") {
    Cache<StandardV<float>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                   {.sequences = 1, .cells = 20, .batch = 10, .offload_as = stored_as<q8_0>}};
    constexpr std::int64_t of_q8_0 = 10 * 2 * 34;
    PrefixTree tree{memory, {.usefulness = tokens_for_each_byte, .offloaded_bytes = of_q8_0}};
    insert_topics(tree, memory, [&] { REQUIRE(audit(tree) == ""); });
    // There is room for one outside. Both save as many tokens for each byte, and topic 0 was not used for longer.
    CHECK(tree.match(topic(0)).length == 0);
    CHECK(tree.match(topic(1)).length == 10);
    CHECK(tree.statistics().offloads == 2);
    CHECK(tree.statistics().evictions == 1);
}

TEST_CASE("a prefix that takes more bytes where it is offloaded is less useful there") {
    Cache<StandardV<q8_0>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                  {.sequences = 1, .cells = 20, .batch = 10, .offload_as = stored_as<float>}};
    const Usefulness smallest = [](const PrefixUse& use) noexcept { return -static_cast<double>(use.bytes); };
    PrefixTree tree{memory, {.usefulness = smallest, .offloaded_bytes = 10'000}};
    const auto insert = [&](const List& list) {
        const auto n = static_cast<std::int32_t>(list.size());
        const std::vector<float> rows(list.size() * 32, 1.0F);
        auto pass = tree.begin(BatchBuilder{Sequence{0}, Position{0}, n}).value();
        pass.put(0, rows, rows);
        pass.commit();
        tree.insert(Sequence{0}, list).value();
        memory.remove(Sequence{0}, Position{0}, to_end).value();
    };
    insert(first(5, topic(0)));
    insert(topic(1));
    {
        const PrefixPin pin = tree.pin(topic(1)); // so that the smaller one leaves
        insert(topic(2));
    }
    REQUIRE(tree.statistics().offloaded == 1);
    CHECK(tree.evict()); // 1280 bytes outside, and twice 680 in place
    CHECK(tree.statistics().offloaded == 0);
    CHECK(tree.match(topic(1)).length == 10);
    CHECK(audit(tree) == "");
}

TEST_CASE("without memory to offload, prefixes are evicted, and without memory to reload, they are shorter") {
    toy::Full memory = full(30);
    PrefixTree tree{memory, {.offloaded_bytes = 10'000}};
    const List lists[] = {topic(0), topic(0) + topic(1), topic(0) + topic(1) + topic(2)};
    const auto fill = [&] {
        tree.clear();
        serve_all(tree, {lists[0], lists[1], lists[2]});
    };
    const toy::Text batch = cellar_test::text(3, 0, 8);
    for (int successes = 0, done = 0; done == 0; ++successes) {
        REQUIRE(successes < 100);
        fill();
        try {
            const FailingAllocations failing{successes};
            done = tree.begin(toy::batch_of(batch)).has_value() && tree.statistics().offloaded == 1;
        } catch (const std::bad_alloc&) {}
        CHECK(audit(tree) == "");
        CHECK(audit(memory) == "");
    }
    CHECK(tree.match(lists[2]).length == 30);

    serve_all(tree, {counted(5000, 30)});
    CHECK(tree.statistics().offloaded == 3);
    std::int32_t length = 0;
    for (int successes = 0; length < 30; ++successes) {
        REQUIRE(successes < 200);
        {
            const FailingAllocations failing{successes};
            length = tree.attach(Sequence{1}, lists[2]).value().length;
        }
        CHECK(lacks(memory, 1, first(length, lists[2])) == "");
        CHECK(audit(tree) == "");
        leave(tree, 1);
    }
}

namespace {

/// A memory of one's own whose snapshots stay in place.
struct WithoutOffload : toy::Recurrent {
    using toy::Recurrent::Recurrent;
    void offload(StateSnapshot&) = delete;
};

} // namespace

TEST_CASE("bytes for offloading that cannot be used are a mistake") {
    toy::Full memory = full(20);
    CHECK(violation_of([&] {
              PrefixTree{memory, {.offloaded_bytes = -1}};
          })
          == "limits: -1 bytes for what is offloaded, expected 0 or more");
    WithoutOffload without_offload{StateShape{1, {{1}}}, StateLimits{.sequences = 4, .batch = 8, .snapshots = 1}};
    CHECK(violation_of([&] {
              PrefixTree{without_offload, {.offloaded_bytes = 1}};
          })
          == "limits: 1 bytes for what is offloaded, expected 0, because the snapshots of this memory cannot be "
             "offloaded");
    PrefixTree tree{without_offload};
    serve_all(tree, {topic(0), topic(1)});
    CHECK(tree.statistics().evictions == 1);
}

} // namespace test_offloading
