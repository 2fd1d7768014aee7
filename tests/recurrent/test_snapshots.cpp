// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "snapshots.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>

namespace test_snapshots {

using namespace cellar;
using namespace recurrent_test;

TEST_CASE("a snapshot of a state survives its sequence, and takes a slot of its own only then") {
    Folding<> states = memory(1);
    CHECK(states.slots() == 2 * 2 + 4 + 1);
    feed(states, 0, 0, 5);
    const auto expected = state_of(states, 0);
    const Slot used = states.statistics().used;
    const StateSnapshot snapshot = states.snapshot(Sequence{0}).value();
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.to() == Position{5});
    CHECK(states.statistics().used == used);
    feed(states, 0, 5, 3);
    feed(states, 1, 0, 2);
    REQUIRE(states.restore(Sequence{1}, snapshot));
    CHECK(states.next(Sequence{1}) == Position{5});
    CHECK(state_of(states, 1) == expected);
    feed(states, 1, 5, 3);
    CHECK(state_of(states, 1) == state_of(states, 0));
}

TEST_CASE("a snapshot of a state gives up its slot when it is destroyed") {
    Folding<> states = memory(1);
    feed(states, 0, 0, 5);
    const Slot used = states.statistics().used;
    {
        const StateSnapshot snapshot = states.snapshot(Sequence{0}).value();
        feed(states, 0, 5, 3); // the slot is the snapshot's alone now
        CHECK(states.statistics().used == used + 1);
    }
    CHECK(states.statistics().used == used);
}

TEST_CASE("a restored sequence keeps no checkpoint that was scheduled before") {
    Folding<> states{shape(), {.sequences = 1, .batch = 8, .checkpoints = 1, .snapshots = 1}};
    feed(states, 0, 0, 2);
    const StateSnapshot snapshot = states.snapshot(Sequence{0}).value();
    REQUIRE(states.schedule(Sequence{0}, Position{5}));
    REQUIRE(states.restore(Sequence{0}, snapshot));
    feed(states, 0, 2, 4);
    CHECK(states.statistics().checkpoints == 0);
}

TEST_CASE("a snapshot of a state is refused where no state is kept, or if there are too many") {
    Folding<> states = memory(2);
    feed(states, 0, 0, 5);
    feed(states, 1, 0, 3);
    const auto refusal = [&](auto operation) { return refusal_of(states, operation); };
    CHECK(refusal([&] { return states.snapshot(Sequence{0}, Position{0}, Position{3}); })
          == Refusal{Reason::cannot_rewind});
    CHECK(refusal([&] { return states.snapshot(Sequence{0}, Position{0}, Position{6}); })
          == Refusal{Reason::cannot_rewind});
    StateSnapshot before = states.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    std::optional<StateSnapshot> now = states.snapshot(Sequence{0}).value();
    const Refusal too_many = refusal([&] { return states.snapshot(Sequence{0}); });
    CHECK(too_many == Refusal{Reason::too_many_snapshots});
    CHECK(too_many.needed == 3);
    CHECK(too_many.available == 2);
    CHECK(refusal([&] { return states.restore(Sequence{1}, *now, Position{4}); }) == Refusal{Reason::cannot_rewind});
    CHECK(refusal([&] { return states.split(*now, Position{4}); }) == Refusal{Reason::cannot_split});
    CHECK(before.to() == Position{4});
    CHECK(now->to() == Position{5});
    REQUIRE(states.merge(before, *std::move(now))); // the later one takes its place
    CHECK(before.to() == Position{5});
    CHECK(states.snapshot(Sequence{0}).has_value());
}

TEST_CASE("without a snapshot, a recurrent memory goes back to a state that it keeps") {
    Folding<> states = memory(0);
    feed(states, 0, 0, 5);
    CHECK(refusal_of(states, [&] { return states.rewind(Sequence{0}, Position{3}); })
          == Refusal{Reason::cannot_rewind});
    REQUIRE(states.rewind(Sequence{0}, Position{4}));
    CHECK(states.next(Sequence{0}) == Position{4});
}

TEST_CASE("mistakes with snapshots of states are violations") {
    std::optional<Folding<>> states = memory(2);
    Folding<> other = memory(3);
    feed(*states, 0, 0, 2);
    StateSnapshot snapshot = states->snapshot(Sequence{0}).value();
    StateSnapshot gone = other.snapshot(Sequence{0}).value();
    const StateSnapshot moved = std::move(gone);
    const auto message = [](auto call) { return violation_of([&] { (void)call(); }); };
    CHECK(message([&] { return states->restore(Sequence{0}, snapshot, Position{3}); })
          == "restore: position 3, expected 0 to 2, within the snapshot");
    CHECK(message([&] { return states->restore(Sequence{2}, snapshot); }) == "sequence 2, expected 0 to 1");
    CHECK(message([&] { return states->restore(Sequence{0}, moved); })
          == "restore: the snapshot, up to position 0, is of another memory, which has 11 slots, expected one of this "
             "memory, which has 10");
    CHECK(message([&] { return gone.to(); }) == "the snapshot was moved from, expected one that was not");
    CHECK(message([&] { return states->merge(snapshot, std::move(snapshot)); })
          == "merge: the snapshots are one and the same, expected two");
    StateSnapshot earlier = states->snapshot(Sequence{0}, Position{0}, Position{0}).value();
    CHECK(message([&] { return states->merge(snapshot, std::move(earlier)); })
          == "merge: the child ends at position 0, expected at least 2, where the parent ends");
    CHECK(earlier.to() == Position{0});
    {
        const auto pass = states->reserve(1);
        const std::string open = ": a pass is open, expected it to be committed or dropped first";
        CHECK(message([&] { return states->merge(earlier, std::move(snapshot)); }) == "merge" + open);
        CHECK(message([&] { return states->split(snapshot, Position{1}); }) == "split" + open);
    }
    CHECK(snapshot.to() == Position{2});
    states.reset();
    CHECK(message([&] { return snapshot.to(); })
          == "the snapshot's memory was destroyed, expected it to live as long as its snapshots are used");
}

} // namespace test_snapshots
