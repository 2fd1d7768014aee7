// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of states that are paged out of their slots, and in again.
#include "../violations.hpp"
#include "snapshots.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>

namespace test_paging {

using namespace cellar;
using namespace recurrent_test;

TEST_CASE("a state that is paged out gives up its slot, and is restored to slots of the sequences") {
    for (const PageTo to : {PageTo::host, PageTo::pinned_host, PageTo::backend}) {
        Folding<> states = memory(1);
        feed(states, 0, 0, 5);
        const auto expected = state_of(states, 0);
        StateSnapshot snapshot = states.snapshot({0}).value();
        CHECK(snapshot.bytes() == 0);
        REQUIRE(states.remove({0}, {0}, to_end));
        CHECK(states.statistics().used == 1);
        CHECK(states.statistics().snapshots == 1);
        states.page_out(snapshot, to);
        states.page_out(snapshot, to); // nothing happens
        CHECK(snapshot.is_paged_out());
        CHECK(snapshot.to() == Position{5});
        CHECK(snapshot.bytes() == Folding<>::bytes_per_sequence(states.shape()));
        CHECK(states.statistics().used == 0);
        CHECK(states.statistics().snapshots == 0);
        CHECK(states.statistics().paged_out == 1);
        CHECK(states.statistics().paged_bytes == snapshot.bytes());
        feed(states, 1, 0, 3); // takes the slot
        REQUIRE(states.restore({0}, snapshot));
        CHECK(state_of(states, 0) == expected);
        REQUIRE(states.restore({1}, snapshot));
        CHECK(state_of(states, 1) == expected);
        CHECK(states.state({0}).slot != states.state({1}).slot);
        CHECK(refusal_of(states, [&] { return states.restore({1}, snapshot, {4}); }) == Refusal{Reason::cannot_rewind});
    }
}

TEST_CASE("a state that is paged in takes a slot of those for snapshots, which sequences share") {
    Folding<> states = memory(1);
    feed(states, 0, 0, 5);
    const auto expected = state_of(states, 0);
    StateSnapshot first = states.snapshot({0}).value();
    states.page_out(first);
    std::optional<StateSnapshot> second = states.snapshot({0}).value(); // those that are paged out do not count
    CHECK(refusal_of(states, [&] { return states.page_in(first); }) == Refusal{Reason::too_many_snapshots});
    CHECK(first.is_paged_out());
    second.reset();
    REQUIRE(states.page_in(first));
    REQUIRE(states.page_in(first)); // nothing happens
    CHECK_FALSE(first.is_paged_out());
    REQUIRE(states.restore({0}, first));
    REQUIRE(states.restore({1}, first));
    CHECK(states.state({0}).slot == states.state({1}).slot);
    CHECK(state_of(states, 1) == expected);
    feed(states, 1, 5, 3);
    CHECK(state_of(states, 0) == expected);
}

TEST_CASE("a snapshot of an empty sequence is paged out and in, too") {
    Folding<> states = memory(1);
    StateSnapshot snapshot = states.snapshot({0}).value();
    states.page_out(snapshot);
    CHECK(snapshot.is_paged_out());
    CHECK(snapshot.bytes() == 0);
    feed(states, 0, 0, 2);
    REQUIRE(states.restore({0}, snapshot));
    CHECK(states.next({0}) == Position{0});
    REQUIRE(states.page_in(snapshot));
    CHECK(states.statistics().used == 0);
    { const StateSnapshot gone = std::move(snapshot); }
    CHECK(states.statistics().snapshots == 0);
}

TEST_CASE("the current states of other sequences are untouched by paging") {
    Folding<> states = memory(2);
    feed(states, 0, 0, 4);
    feed(states, 1, 0, 6);
    const auto other = state_of(states, 1);
    StateSnapshot a = states.snapshot({0}).value();
    StateSnapshot b = states.snapshot({1}).value();
    states.page_out(a);
    states.page_out(b, PageTo::backend);
    feed(states, 0, 4, 3);
    REQUIRE(states.page_in(b));
    CHECK(state_of(states, 1) == other);
    REQUIRE(states.merge(a, std::move(b)));
    CHECK_FALSE(a.is_paged_out());
    CHECK(a.to() == Position{6});
    CHECK(states.statistics().paged_out == 0);
}

TEST_CASE("a state that is paged out outlives its memory, and is then of no use") {
    std::optional<Folding<>> states{memory(1)};
    feed(*states, 0, 0, 2);
    StateSnapshot snapshot = states->snapshot({0}).value();
    states->page_out(snapshot);
    states.reset();
    CHECK(violation_of([&] { (void)snapshot.bytes(); }).find("the snapshot's memory was destroyed") == 0);
}

} // namespace test_paging
