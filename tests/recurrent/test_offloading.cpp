// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of states that are offloaded from their slots, and reloaded.
#include "../violations.hpp"
#include "snapshots.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>

namespace test_offloading {

using namespace cellar;
using namespace recurrent_test;

TEST_CASE("a state that is offloaded gives up its slot, and is restored to slots of the sequences") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend}) {
        Folding<> states = memory(1);
        feed(states, 0, 0, 5);
        const auto expected = state_of(states, 0);
        StateSnapshot snapshot = states.snapshot(Sequence{0}).value();
        CHECK(snapshot.bytes() == 0);
        REQUIRE(states.remove(Sequence{0}, Position{0}, to_end));
        CHECK(states.statistics().used == 1);
        CHECK(states.statistics().snapshots == 1);
        states.offload(snapshot, to);
        states.offload(snapshot, to); // nothing happens
        CHECK(snapshot.is_offloaded());
        CHECK(snapshot.to() == Position{5});
        CHECK(snapshot.bytes() == Folding<>::bytes_per_sequence(states.shape()));
        CHECK(states.statistics().used == 0);
        CHECK(states.statistics().snapshots == 0);
        CHECK(states.statistics().offloaded == 1);
        CHECK(states.statistics().offloaded_bytes == snapshot.bytes());
        feed(states, 1, 0, 3); // takes the slot
        REQUIRE(states.restore(Sequence{0}, snapshot));
        CHECK(state_of(states, 0) == expected);
        REQUIRE(states.restore(Sequence{1}, snapshot));
        CHECK(state_of(states, 1) == expected);
        CHECK(states.state(Sequence{0}).slot != states.state(Sequence{1}).slot);
        CHECK(refusal_of(states, [&] { return states.restore(Sequence{1}, snapshot, Position{4}); })
              == Refusal{Reason::cannot_rewind});
    }
}

TEST_CASE("a state that is reloaded takes a slot of those for snapshots, which sequences share") {
    Folding<> states = memory(1);
    feed(states, 0, 0, 5);
    const auto expected = state_of(states, 0);
    StateSnapshot first = states.snapshot(Sequence{0}).value();
    states.offload(first);
    std::optional<StateSnapshot> second = states.snapshot(Sequence{0}).value(); // those that are offloaded do not count
    CHECK(refusal_of(states, [&] { return states.reload(first); }) == Refusal{Reason::too_many_snapshots});
    CHECK(first.is_offloaded());
    second.reset();
    REQUIRE(states.reload(first));
    REQUIRE(states.reload(first)); // nothing happens
    CHECK_FALSE(first.is_offloaded());
    REQUIRE(states.restore(Sequence{0}, first));
    REQUIRE(states.restore(Sequence{1}, first));
    CHECK(states.state(Sequence{0}).slot == states.state(Sequence{1}).slot);
    CHECK(state_of(states, 1) == expected);
    feed(states, 1, 5, 3);
    CHECK(state_of(states, 0) == expected);
}

TEST_CASE("a snapshot of an empty sequence is offloaded and in, too") {
    Folding<> states = memory(1);
    StateSnapshot snapshot = states.snapshot(Sequence{0}).value();
    states.offload(snapshot);
    CHECK(snapshot.is_offloaded());
    CHECK(snapshot.bytes() == 0);
    feed(states, 0, 0, 2);
    REQUIRE(states.restore(Sequence{0}, snapshot));
    CHECK(states.next(Sequence{0}) == Position{0});
    REQUIRE(states.reload(snapshot));
    CHECK(states.statistics().used == 0);
    { const StateSnapshot gone = std::move(snapshot); }
    CHECK(states.statistics().snapshots == 0);
}

TEST_CASE("the current states of other sequences are untouched by offloading") {
    Folding<> states = memory(2);
    feed(states, 0, 0, 4);
    feed(states, 1, 0, 6);
    const auto other = state_of(states, 1);
    StateSnapshot a = states.snapshot(Sequence{0}).value();
    StateSnapshot b = states.snapshot(Sequence{1}).value();
    states.offload(a);
    states.offload(b, OffloadTo::backend);
    feed(states, 0, 4, 3);
    REQUIRE(states.reload(b));
    CHECK(state_of(states, 1) == other);
    REQUIRE(states.merge(a, std::move(b)));
    CHECK_FALSE(a.is_offloaded());
    CHECK(a.to() == Position{6});
    CHECK(states.statistics().offloaded == 0);
}

TEST_CASE("a state that is offloaded outlives its memory, and is then of no use") {
    std::optional<Folding<>> states{memory(1)};
    feed(*states, 0, 0, 2);
    StateSnapshot snapshot = states->snapshot(Sequence{0}).value();
    states->offload(snapshot);
    states.reset();
    CHECK(violation_of([&] { (void)snapshot.bytes(); }).find("the snapshot's memory was destroyed") == 0);
}

} // namespace test_offloading
