// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of a hybrid: all members, or none.
#include "../violations.hpp"
#include "failing_allocations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>

using namespace cellar;
using namespace toy;

namespace {

toy::Memory memory(std::int32_t snapshots) {
    return toy::Memory{
        layers, Sliding{{4, 1, 1}, {.sequences = 3, .capacity = 100, .batch = 8}, SlidingWindow<4>{{.retention = 8}}},
        Full{{2, 1, 1}, {.sequences = 3, .capacity = 20, .batch = 8}},
        Recurrent{{1, {{1}}}, {.sequences = 3, .batch = 8, .rollback = 2, .snapshots = snapshots}}};
}

} // namespace

TEST_CASE("a snapshot of a hybrid restores all members to one position") {
    toy::Memory m = memory(2);
    REQUIRE(feed(m, text(0, 0, 8)));
    REQUIRE(feed(m, text(0, 8, 5)));
    const auto snapshot = m.snapshot({0}).value();
    CHECK(snapshot.to() == Position{13});
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.of<Full>().tokens() == 13);
    CHECK(snapshot.of<Sliding>().tokens() == 8);
    const auto value = [&](int s) {
        const Recurrent& recurrent = m.member<Recurrent>();
        return recurrent.view<Hash>(0, recurrent.state({s}))(0);
    };
    const float expected = value(0);
    REQUIRE(feed(m, text(0, 13, 2)));
    CHECK(value(0) != expected);
    REQUIRE(m.remove({0}, {0}, to_end));
    REQUIRE(m.restore({1}, snapshot));
    CHECK(value(1) == expected);
    CHECK(m.next({1}) == Position{13});
    CHECK(contents(m.member<Full>(), 1).find("layers differ") == std::string::npos);
    REQUIRE(m.restore({0}, snapshot));
    CHECK(contents(m.member<Full>(), 1) == contents(m.member<Full>(), 0));
    CHECK(contents(m.member<Sliding>(), 1) == contents(m.member<Sliding>(), 0));
    CHECK(feed(m, text(1, 13, 3)));
}

TEST_CASE("a snapshot of a hybrid begins where the last of its members does") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    REQUIRE(feed(m, text(0, 8, 5)));
    const auto snapshot = m.snapshot({0}, {3}).value();
    CHECK(snapshot.of<Sliding>().from() == Position{0}); // its window has moved on
    CHECK(snapshot.of<Full>().from() == Position{3});
    CHECK(snapshot.from() == Position{3});
}

TEST_CASE("a snapshot that one member refuses is refused by all, and the refusal names the member") {
    toy::Memory m = memory(1);
    REQUIRE(feed(m, text(0, 0, 8)));
    const std::string before = portrait(m);
    CHECK(m.snapshot({0}, {0}, {4}).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(portrait(m) == before);
    const auto snapshot = m.snapshot({0}).value();
    const std::string with_one = portrait(m);
    CHECK(m.snapshot({0}).error() == Refusal{Reason::too_many_snapshots, 2});
    CHECK(m.restore({1}, snapshot, {7}).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(portrait(m) == with_one);
}

TEST_CASE("a failed allocation in an operation on snapshots changes nothing") {
    toy::Memory m = memory(4);
    REQUIRE(feed(m, text(0, 0, 8)));
    std::string before = portrait(m);
    std::optional<SnapshotOf<toy::Memory>> snapshot;
    CHECK(failures_of([&] { snapshot.emplace(*m.snapshot({0})); }, [&] { CHECK(portrait(m) == before); }) > 2);
    before = portrait(m);
    failures_of([&] { REQUIRE(m.restore({1}, *snapshot)); }, [&] { CHECK(portrait(m) == before); });
    CHECK(m.next({1}) == Position{8});

    Full& full = m.member<Full>();
    CellSnapshot head = full.snapshot({0}).value();
    std::optional<CellSnapshot> tail;
    before = portrait(m);
    CHECK(failures_of([&] { tail.emplace(*full.split(head, {5})); }, [&] { CHECK(portrait(m) == before); }) > 0);
    before = portrait(m);
    failures_of([&] { REQUIRE(full.merge(head, *std::move(tail))); }, [&] { CHECK(portrait(m) == before); });
    CHECK(head.tokens() == 8);
    CHECK(audit(full) == "");
}
