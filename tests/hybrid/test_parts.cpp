// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of a hybrid are joined and divided in all members, or in none.
#include "../violations.hpp"
#include "failing_allocations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <regex>
#include <string>
#include <type_traits>
#include <utility>

namespace test_parts {

using namespace cellar;
using namespace toy;

namespace {

constexpr std::int32_t full_cells = 60;

Sliding sliding() {
    return Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1},
                   {.sequences = 3, .capacity = 100, .batch = 8},
                   SlidingWindow<4>{{.retention = 8}}};
}
Full full() {
    return Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .cells = full_cells, .batch = 8}};
}
toy::Memory chat_memory() {
    return toy::Memory{layers, sliding(), full(),
                       Recurrent{{1, {{1}}}, {.sequences = 3, .batch = 8, .rollback = 2, .snapshots = 4}}};
}

/// All of whose members can be divided.
using Attention = Hybrid<Repeat<Times<2, Sliding>, Full>, Sliding, Full>;
Attention attention() {
    return Attention{6, sliding(), full()};
}

template <class M>
void feed_all(M& m, int s, int first, int count) {
    for (int p = first; p < first + count; p += 4)
        REQUIRE(feed(m, text(s, p, std::min(4, first + count - p)), m.layers()));
}

/// What a sequence remembers, wherever it lies.
template <class M>
std::string remembered(M& m, int s) {
    std::string all = contents(m.template member<Sliding>(), s) + " |" + contents(m.template member<Full>(), s);
    if constexpr (std::is_same_v<M, toy::Memory>) {
        const Recurrent& recurrent = m.template member<Recurrent>();
        all += " | " + std::to_string(m.next(Sequence{s}).value) + ':'
               + std::to_string(recurrent.view<Hash>(0, recurrent.state(Sequence{s}))(0));
    }
    return std::regex_replace(all, std::regex{"@[0-9]+"}, "");
}

/// All that can be observed of a memory and of these snapshots.
template <class M, class... Snapshots>
std::string observed(M& m, const Snapshots&... snapshots) {
    std::string all;
    const auto add = [&](const auto& member) {
        all += member.is_offloaded() ? " out" : " in";
        all += '[' + std::to_string(member.from().value) + ", " + std::to_string(member.to().value) + ')'
               + std::to_string(member.bytes());
    };
    const auto add_all = [&](const auto& snapshot) {
        add(snapshot.template of<0>());
        add(snapshot.template of<1>());
        if constexpr (std::is_same_v<M, toy::Memory>) add(snapshot.template of<2>());
    };
    (add_all(snapshots), ...);
    all += member_portrait(m.template member<Sliding>()) + member_portrait(m.template member<Full>());
    if constexpr (std::is_same_v<M, toy::Memory>) all += member_portrait(m.template member<Recurrent>());
    return all;
}

/// Restores a snapshot into sequence s, which then remembers what is expected.
template <class M, class Snapshot>
void check_restored(M& m, int s, const Snapshot& snapshot, const std::string& expected) {
    REQUIRE(m.restore(Sequence{s}, snapshot));
    CHECK(remembered(m, s) == expected);
}

} // namespace

TEST_CASE("two turns of a chat are joined: what forgets nothing grows, a window and a state are the later ones") {
    toy::Memory m = chat_memory();
    feed_all(m, 0, 0, 8);
    auto chat = m.snapshot(Sequence{0}).value();
    feed_all(m, 0, 8, 7);
    auto turn = m.snapshot(Sequence{0}, Position{8}).value();
    const std::string expected = remembered(m, 0);
    REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(m.merge(chat, std::move(turn)));
    CHECK(chat.from() == Position{0});
    CHECK(chat.to() == Position{15});
    CHECK(chat.of<Full>().tokens() == 15);
    CHECK(chat.of<Sliding>().tokens() == 8);
    CHECK(m.member<Full>().statistics().snapshots == 1);
    CHECK(m.member<Sliding>().statistics().snapshots == 1);
    CHECK(m.member<Recurrent>().statistics().snapshots == 1);
    check_restored(m, 1, chat, expected);
    feed_all(m, 1, 15, 2);
}

TEST_CASE("snapshots of a hybrid are joined wherever they are") {
    for (const bool parent_out : {false, true}) {
        for (const bool child_out : {false, true}) {
            toy::Memory m = chat_memory();
            feed_all(m, 0, 0, 10);
            auto chat = m.snapshot(Sequence{0}).value();
            feed_all(m, 0, 10, 3);
            auto turn = m.snapshot(Sequence{0}, Position{10}).value();
            const std::string expected = remembered(m, 0);
            if (parent_out) m.offload(chat);
            if (child_out) m.offload(turn);
            REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
            REQUIRE(m.merge(chat, std::move(turn)));
            CHECK(chat.of<Full>().is_offloaded() == parent_out);
            CHECK(chat.of<Sliding>().is_offloaded() == child_out); // the later one
            CHECK(chat.of<Recurrent>().is_offloaded() == child_out);
            CHECK(chat.is_offloaded() == (parent_out && child_out));
            check_restored(m, 1, chat, expected);
            REQUIRE(m.reload(chat));
            CHECK(chat.bytes() == 0);
            check_restored(m, 2, chat, expected);
        }
    }
}

TEST_CASE("a merge that one member refuses is refused by all, and the refusal names the member") {
    toy::Memory m = chat_memory();
    feed_all(m, 0, 0, 10);
    auto chat = m.snapshot(Sequence{0}).value();
    feed_all(m, 0, 10, 3);
    auto turn = m.snapshot(Sequence{0}, Position{10}).value();
    m.offload(turn);
    auto pad = m.member<Full>().snapshot(Sequence{0}).value();
    for (int p = 13; m.member<Full>().statistics().free > 2; ++p) feed_all(m, 0, p, 1);
    const std::string before = observed(m, chat, turn);
    CHECK(m.merge(chat, std::move(turn)).error() == Refusal{Reason::full, 1});
    CHECK(observed(m, chat, turn) == before);
}

TEST_CASE("a hybrid that forgets nothing yet is divided in all members, in place or offloaded") {
    for (const bool offloaded : {false, true}) {
        Attention m = attention();
        feed_all(m, 0, 0, 8);
        auto head = m.snapshot(Sequence{0}).value();
        if (offloaded) m.offload(head);
        const std::string expected = remembered(m, 0);
        REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
        auto tail = m.split(head, Position{5}).value();
        CHECK(head.to() == Position{5});
        CHECK(tail.from() == Position{5});
        CHECK(tail.to() == Position{8});
        CHECK(tail.of<Full>().tokens() == 3);
        CHECK(tail.of<Sliding>().tokens() == 3);
        CHECK((head.bytes() > 0) == offloaded);
        CHECK(5 * tail.bytes() == 3 * head.bytes());
        REQUIRE(m.restore(Sequence{1}, head));
        check_restored(m, 1, tail, expected);
        REQUIRE(m.merge(head, std::move(tail)));
        check_restored(m, 2, head, expected);
    }
}

TEST_CASE("a division that one member refuses is refused by all, and the refusal names the member") {
    toy::Memory m = chat_memory();
    feed_all(m, 0, 0, 8);
    auto snapshot = m.snapshot(Sequence{0}).value();
    std::string before = observed(m, snapshot);
    CHECK(m.split(snapshot, Position{5}).error() == Refusal{Reason::cannot_split, 2}); // the state
    CHECK(observed(m, snapshot) == before);
    m.offload(snapshot);
    before = observed(m, snapshot);
    CHECK(m.split(snapshot, Position{5}).error() == Refusal{Reason::cannot_split, 2});
    CHECK(observed(m, snapshot) == before);
    feed_all(m, 0, 8, 4);
    auto later = m.snapshot(Sequence{0}).value();
    before = observed(m, later);
    CHECK(m.split(later, Position{11}).error() == Refusal{Reason::cannot_split, 0}); // the window, which has moved on
    CHECK(observed(m, later) == before);
}

TEST_CASE("mistakes with parts of a hybrid's snapshots are violations, and change nothing") {
    toy::Memory m = chat_memory();
    feed_all(m, 0, 0, 8);
    auto chat = m.snapshot(Sequence{0}).value();
    feed_all(m, 0, 8, 4);
    auto apart =
        m.snapshot(Sequence{0}, Position{10}).value(); // its window and its state would take the place of the chat's
    const std::string before = observed(m, chat, apart);
    CHECK(violation_of([&] { (void)m.merge(chat, std::move(apart)); })
          == "merge: the child is of positions [10, 12), expected it to begin at 8, where the parent ends");
    CHECK(violation_of([&] { (void)m.merge(chat, std::move(chat)); })
          == "merge: the snapshots are one and the same, expected two");
    CHECK(violation_of([&] { (void)m.split(apart, Position{9}); }) == "split: position 9, expected 10 to 12");
    CHECK(violation_of([&] { (void)m.split(chat, Position{9}); }) == "split: position 9, expected 0 to 8");
    CHECK(observed(m, chat, apart) == before);
}

TEST_CASE("a failed allocation while snapshots of a hybrid are joined changes nothing") {
    for (const bool parent_out : {false, true}) {
        for (const bool child_out : {false, true}) {
            toy::Memory m = chat_memory();
            feed_all(m, 0, 0, 10);
            auto chat = m.snapshot(Sequence{0}).value();
            feed_all(m, 0, 10, 3);
            auto turn = m.snapshot(Sequence{0}, Position{10}).value();
            if (parent_out) m.offload(chat);
            if (child_out) m.offload(turn);
            REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
            const std::string before = observed(m, chat, turn);
            const int failures = failures_of([&] { (void)m.merge(chat, std::move(turn)).has_value(); },
                                             [&] { CHECK(observed(m, chat, turn) == before); });
            CHECK((failures > 0) == (parent_out || child_out)); // in place, there is room for the few runs
            CHECK(chat.to() == Position{13});
            CHECK(m.restore(Sequence{1}, chat));
        }
    }
}

TEST_CASE("a failed allocation while a snapshot of a hybrid is divided changes nothing") {
    for (const bool offloaded : {false, true}) {
        Attention m = attention();
        feed_all(m, 0, 0, 8);
        auto head = m.snapshot(Sequence{0}).value();
        if (offloaded) m.offload(head);
        const std::string before = observed(m, head);
        std::optional<SnapshotOf<Attention>> tail;
        const int failures = failures_of([&] { tail.emplace(*m.split(head, Position{5})); },
                                         [&] { CHECK(observed(m, head) == before); });
        CHECK(failures >= (offloaded ? 16 : 4));
        CHECK(tail->from() == Position{5});
        CHECK(head.to() == Position{5});
    }
}

namespace {

/// A cache whose snapshots are neither joined nor divided.
struct Undivided : Full {
    using Full::Full;
    using Full::prepare;
    void prepare(const op::Merge<CellSnapshot>&) = delete;
    void prepare(const op::Split<CellSnapshot>&) = delete;
};
static_assert(TwoPhaseSnapshots<Undivided>);

template <class M>
concept has_parts = requires(M& m, SnapshotOf<M>& snapshot) {
    m.merge(snapshot, std::move(snapshot));
    m.split(snapshot, Position{});
};
using WithUndivided = Hybrid<LayerList<Times<2, Undivided>>, Undivided>;
static_assert(has_parts<Attention> && has_parts<toy::Memory> && !has_parts<WithUndivided>);

} // namespace

TEST_CASE("a memory whose snapshots are not divided is a member like others, without these operations") {
    WithUndivided m{
        2, Undivided{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 10, .batch = 8}}};
    feed_all(m, 0, 0, 4);
    auto snapshot = m.snapshot(Sequence{0}).value();
    m.offload(snapshot);
    REQUIRE(m.restore(Sequence{1}, snapshot));
    CHECK(m.member<Undivided>().tokens(Sequence{1}) == 4);
}

} // namespace test_parts
