// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of a hybrid: all members, or none.
#include "../violations.hpp"
#include "failing_allocations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace test_snapshots {

using namespace cellar;
using namespace toy;

namespace {

toy::Memory memory(std::int32_t snapshots) {
    return toy::Memory{layers,
                       Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1},
                               {.sequences = 3, .capacity = 100, .batch = 8},
                               SlidingWindow<4>{{.retention = 8}}},
                       Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 20, .batch = 8}},
                       Recurrent{{1, {{1}}}, {.sequences = 3, .batch = 8, .rollback = 2, .snapshots = snapshots}}};
}

/// The positions and numbers of a sequence's tokens, wherever they lie.
template <class Member>
std::string tokens_of(Member& member, int sequence) {
    return std::regex_replace(contents(member, sequence), std::regex{"@[0-9]+"}, "");
}

} // namespace

TEST_CASE("a snapshot of a hybrid restores all members to one position") {
    toy::Memory m = memory(2);
    REQUIRE(feed(m, text(0, 0, 8)));
    REQUIRE(feed(m, text(0, 8, 5)));
    const auto snapshot = m.snapshot(Sequence{0}).value();
    CHECK(snapshot.to() == Position{13});
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.of<Full>().tokens() == 13);
    CHECK(snapshot.of<Sliding>().tokens() == 8);
    const auto value = [&](int s) {
        const Recurrent& recurrent = m.member<Recurrent>();
        return recurrent.view<Hash>(0, recurrent.state(Sequence{s}))(0);
    };
    const float expected = value(0);
    REQUIRE(feed(m, text(0, 13, 2)));
    CHECK(value(0) != expected);
    REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(m.restore(Sequence{1}, snapshot));
    CHECK(value(1) == expected);
    CHECK(m.next(Sequence{1}) == Position{13});
    CHECK(contents(m.member<Full>(), 1).find("layers differ") == std::string::npos);
    REQUIRE(m.restore(Sequence{0}, snapshot));
    CHECK(contents(m.member<Full>(), 1) == contents(m.member<Full>(), 0));
    CHECK(contents(m.member<Sliding>(), 1) == contents(m.member<Sliding>(), 0));
    CHECK(feed(m, text(1, 13, 3)));
}

TEST_CASE("a snapshot of a hybrid begins where the last of its members does") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    REQUIRE(feed(m, text(0, 8, 5)));
    const auto snapshot = m.snapshot(Sequence{0}, Position{3}).value();
    CHECK(snapshot.of<Sliding>().from() == Position{0}); // its window has moved on
    CHECK(snapshot.of<Full>().from() == Position{3});
    CHECK(snapshot.from() == Position{3});
}

TEST_CASE("a snapshot of a hybrid ends at the next token, and has the inputs behind it") {
    using Inputs = EncoderMemory<StandardV<float>>;
    const CacheLimits limits{.sequences = 2, .capacity = 8, .batch = 8};
    Hybrid<Every<2, Inputs, Full>, Inputs, Full> m{2, Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                                                   Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    for (const int p : {1, 5}) { // the next token will be at 3
        auto pass = m.member<Inputs>().write(Sequence{0}, Position{p}, 2).value();
        pass.put(0, std::vector<float>{1, 2}, std::vector<float>{1, 2});
        pass.commit();
    }
    {
        auto pass = m.begin(batch_of(text(0, 0, 3))).value();
        pass.of<Full>().put(0, std::vector<float>{1, 2, 3}, std::vector<float>{1, 2, 3});
        pass.commit();
    }
    const auto snapshot = m.snapshot(Sequence{0}).value();
    CHECK(snapshot.to() == Position{3});
    CHECK(snapshot.of<Full>().to() == Position{3});
    CHECK(snapshot.of<Inputs>().to() == to_end);
    REQUIRE(m.restore(Sequence{1}, snapshot));
    CHECK(m.next(Sequence{1}) == Position{3});
    CHECK(m.member<Inputs>().range(Sequence{1}) == PositionRange{Position{1}, Position{5}});
}

TEST_CASE("a snapshot that one member refuses is refused by all, and the refusal names the member") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    const std::string before = portrait(m);
    CHECK(m.snapshot(Sequence{0}, Position{0}, Position{4}).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(portrait(m) == before);
    const auto snapshot = m.snapshot(Sequence{0}).value();
    const std::string with_one = portrait(m);
    CHECK(m.snapshot(Sequence{0}).error() == Refusal{Reason::too_many_snapshots, 2});
    CHECK(m.restore(Sequence{1}, snapshot, Position{7}).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(portrait(m) == with_one);
}

TEST_CASE("a failed allocation in an operation on snapshots changes nothing") {
    toy::Memory m = memory(4);
    REQUIRE(feed(m, text(0, 0, 8)));
    std::string before = portrait(m);
    std::optional<SnapshotOf<toy::Memory>> snapshot;
    CHECK(failures_of([&] { snapshot.emplace(*m.snapshot(Sequence{0})); }, [&] { CHECK(portrait(m) == before); }) > 2);
    REQUIRE(m.restore(Sequence{1}, *snapshot)); // needs no memory, as there are few runs
    CHECK(m.next(Sequence{1}) == Position{8});

    Full& full = m.member<Full>();
    CellSnapshot head = full.snapshot(Sequence{0}).value();
    std::optional<CellSnapshot> tail;
    before = portrait(m);
    CHECK(failures_of([&] { tail.emplace(*full.split(head, Position{5})); }, [&] { CHECK(portrait(m) == before); })
          > 0);
    REQUIRE(full.merge(head, *std::move(tail))); // the list of its runs was as long before
    CHECK(head.tokens() == 8);
    CHECK(audit(full) == "");
}

TEST_CASE("a failed allocation while snapshots of many runs are joined or restored changes nothing") {
    using Two = Hybrid<Repeat<Full, Recurrent>, Full, Recurrent>;
    Two m{2, Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 5, .capacity = 40, .batch = 8}},
          Recurrent{{1, {{1}}}, {.sequences = 5, .batch = 8, .snapshots = 2}}};
    const auto picture = [&] { return member_portrait(m.member<0>()) + member_portrait(m.member<1>()); };
    std::optional<SnapshotOf<Two>> head;
    for (int p = 0; p < 24; ++p) { // 169 runs in the end, more than planned
        if (p == 2) head.emplace(*m.snapshot(Sequence{0}));
        REQUIRE(feed(m, group(0, p, 8), 2));
    }
    std::optional<SnapshotOf<Two>> tail = *m.snapshot(Sequence{0}, Position{2});
    std::string before = picture();
    const auto unchanged = [&] {
        CHECK(picture() == before);
        CHECK(head->to() == Position{2});
        CHECK(tail->from() == Position{2});
        CHECK(tail->of<Full>().tokens() == 176);
    };
    CHECK(failures_of([&] { (void)m.merge(*head, *std::move(tail)).has_value(); }, unchanged) > 0);
    CHECK(head->to() == Position{24});
    CHECK(head->of<Full>().tokens() == 192);
    before = picture();
    CHECK(failures_of([&] { (void)m.restore(Sequence{1}, *head).has_value(); }, [&] { CHECK(picture() == before); })
          > 0);
    CHECK(m.next(Sequence{1}) == Position{24});
    CHECK(contents(m.member<Full>(), 1) == contents(m.member<Full>(), 0));
    CHECK(contents(m.member<Recurrent>(), 1) == contents(m.member<Recurrent>(), 0));
    CHECK(audit(m.member<Full>()) == "");
}

TEST_CASE("a snapshot of a hybrid is offloaded and in, in all members") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    REQUIRE(feed(m, text(0, 8, 5)));
    const std::string expected = tokens_of(m.member<Full>(), 0);
    auto snapshot = m.snapshot(Sequence{0}).value();
    CHECK(snapshot.bytes() == 0);
    m.offload(snapshot);
    const std::int64_t offloaded = m.member<Full>().statistics().offloaded_bytes
                                   + m.member<Sliding>().statistics().offloaded_bytes
                                   + m.member<Recurrent>().statistics().offloaded_bytes;
    CHECK(snapshot.bytes() == offloaded);
    REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
    CHECK(m.member<Full>().statistics().free == m.member<Full>().cells());
    CHECK(m.member<Recurrent>().statistics().used == 0);
    REQUIRE(m.restore(Sequence{1}, snapshot));
    CHECK(tokens_of(m.member<Full>(), 1) == expected);
    REQUIRE(m.reload(snapshot));
    CHECK(snapshot.bytes() == 0);
    REQUIRE(m.restore(Sequence{0}, snapshot));
    CHECK(m.next(Sequence{0}) == Position{13});
    CHECK(tokens_of(m.member<Full>(), 0) == expected);
}

TEST_CASE("a hybrid is reloaded by all members, or by none") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    auto snapshot = m.snapshot(Sequence{0}).value();
    m.offload(snapshot);
    const auto other = m.snapshot(Sequence{0}).value();
    const std::string before = portrait(m);
    CHECK(m.reload(snapshot).error() == Refusal{Reason::too_many_snapshots, 2});
    CHECK(portrait(m) == before);
    CHECK(snapshot.of<Full>().is_offloaded());
    CHECK(snapshot.of<Recurrent>().is_offloaded());
}

TEST_CASE("a hybrid goes back without a snapshot, to where all members can") {
    toy::Memory m = memory(0);
    REQUIRE(feed(m, text(0, 0, 8)));
    const std::string before = portrait(m);
    CHECK(m.rewind(Sequence{0}, Position{3}).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(portrait(m) == before);
    REQUIRE(m.rewind(Sequence{0}, Position{7}));
    CHECK(m.next(Sequence{0}) == Position{7});
}

TEST_CASE("a failed allocation while a snapshot is offloaded or in changes nothing") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    auto snapshot = m.snapshot(Sequence{0}).value();
    std::string before = portrait(m);
    CHECK(failures_of([&] { m.offload(snapshot); }, [&] { CHECK(portrait(m) == before); }) >= 8);
    CHECK(snapshot.of<Recurrent>().is_offloaded());
    REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
    before = portrait(m);
    CHECK(
        failures_of([&] { (void)m.restore(Sequence{1}, snapshot).has_value(); }, [&] { CHECK(portrait(m) == before); })
        > 2);
    before = portrait(m);
    CHECK(failures_of([&] { (void)m.reload(snapshot).has_value(); }, [&] { CHECK(portrait(m) == before); }) > 2);
    CHECK_FALSE(snapshot.of<Recurrent>().is_offloaded());
    CHECK(m.next(Sequence{1}) == Position{8});
    CHECK(audit(m.member<Full>()) == "");
}

} // namespace test_snapshots
