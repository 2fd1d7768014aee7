// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrent/folding.hpp"
#include "violations.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace test_checkpoints {

using namespace recurrent_test;
using cellar::Reason;
using cellar::to_end;

namespace {

cellar::StateLimits with_checkpoints(int count, int interval, int sequences = 3) {
    return {.sequences = sequences, .batch = 32, .checkpoints = count, .checkpoint_interval = interval};
}

std::vector<int> checkpoints(const Folding<>& memory, int s) {
    std::vector<int> positions;
    for (const cellar::KeptState& state : memory.kept(cellar::Sequence{s}))
        if (state.is_checkpoint) positions.push_back(state.next.value);
    return positions;
}

} // namespace

TEST_CASE("checkpoints: one is made at every multiple of the interval, also within a batch") {
    Folding<> memory{shape(), with_checkpoints(15, 4)};
    REQUIRE(feed(memory, text(0, 0, 10)));
    REQUIRE(feed(memory, text(0, 10, 1, 11)));
    REQUIRE(feed(memory, text(0, 11, 1, 12)));
    REQUIRE(feed(memory, text(0, 12, 1, 13)));
    CHECK(kept(memory, 0) == std::vector<int>{4, 8, 12, 13});
    for (const int p : {4, 8, 12, 13}) CHECK(holds(memory, 0, p, words(p)));
    CHECK(memory.resumable_prefix(cellar::Sequence{0}, Position{11}) == Position{8});
    CHECK(memory.remove(cellar::Sequence{0}, Position{7}, to_end).error() == Reason::cannot_rewind);
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{8}, to_end));
    CHECK(checkpoints(memory, 0) == std::vector<int>{4, 8});
    REQUIRE(feed(memory, text(0, 8, 5, 9)));
    CHECK(holds(memory, 0, 13, words(13)));
    CHECK(checkpoints(memory, 0) == std::vector<int>{4, 8, 12});
}

TEST_CASE("checkpoints: one is made of the current state, and at a scheduled position") {
    Folding<> memory{shape(), with_checkpoints(15, 0)};
    REQUIRE(memory.checkpoint(cellar::Sequence{0})); // the sequence is empty: does nothing
    CHECK(memory.statistics().checkpoints == 0);
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(memory.checkpoint(cellar::Sequence{0}));
    REQUIRE(memory.checkpoint(cellar::Sequence{0}));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{6}));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{5}));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{6}));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{20}));
    REQUIRE(feed(memory, text(0, 3, 5, 4)));
    CHECK(checkpoints(memory, 0) == std::vector<int>{3, 5, 6});
    CHECK(memory.statistics().checkpoints == 3);
    for (const int p : {3, 5, 6, 8}) CHECK(holds(memory, 0, p, words(p)));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{3}, to_end));
    REQUIRE(feed(memory, text(0, 3, 5, 4))); // 5 and 6 were reached before
    CHECK(checkpoints(memory, 0) == std::vector<int>{3});
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, to_end));
    REQUIRE(feed(memory, text(0, 0, 25))); // the schedule for 20 went with the old text
    CHECK(checkpoints(memory, 0).empty());
    CHECK(memory.schedule(cellar::Sequence{0}, Position{25}).error() == cellar::Reason::already_passed);
    CHECK(violation_of([&] { (void)memory.schedule(cellar::Sequence{0}, cellar::to_end); })
          == "schedule: position 2147483647, expected 0 or more, and less than to_end");
}

TEST_CASE("checkpoints: without room for any, they are refused, and nothing changes") {
    cellar::StateLimits limits = with_checkpoints(0, 0);
    limits.rollback = 1;
    Folding<> memory{shape(), limits};
    REQUIRE(feed(memory, text(0, 0, 3) + text(1, 0, 2)));
    CHECK(refusal_of(memory, [&] { return memory.checkpoint(cellar::Sequence{0}); }) == Reason::no_checkpoints);
    CHECK(refusal_of(memory, [&] { return memory.schedule(cellar::Sequence{0}, Position{4}); })
          == Reason::no_checkpoints);
    REQUIRE(feed(memory, text(0, 3, 4, 4)));
    CHECK(kept(memory, 0) == std::vector<int>{6, 7}); // no state is kept at 4
    CHECK(holds(memory, 0, 7, words(7)));
}

TEST_CASE("checkpoints: a schedule survives an empty removal, but not the removal of all tokens") {
    Folding<> memory{shape(), with_checkpoints(15, 0)};
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{3}));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, Position{0}));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{1}, to_end));
    REQUIRE(feed(memory, text(0, 0, 5)));
    CHECK(checkpoints(memory, 0) == std::vector<int>{3});
    // A sequence that is cleared belongs to another user from then on, even if it was empty.
    REQUIRE(memory.schedule(cellar::Sequence{1}, Position{3}));
    REQUIRE(memory.remove(cellar::Sequence{1}, Position{0}, to_end));
    REQUIRE(feed(memory, text(1, 0, 5)));
    CHECK(checkpoints(memory, 1).empty());
}

TEST_CASE("checkpoints: one that is no longer scheduled is not made, and one that was made stays") {
    Folding<> memory{shape(), with_checkpoints(15, 0)};
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{3}));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{5}));
    memory.unschedule(cellar::Sequence{0}, Position{5});
    memory.unschedule(cellar::Sequence{0}, Position{6}); // not scheduled
    REQUIRE(feed(memory, text(0, 0, 8)));
    memory.unschedule(cellar::Sequence{0}, Position{3});
    CHECK(checkpoints(memory, 0) == std::vector<int>{3});
    CHECK(violation_of([&] { memory.unschedule(cellar::Sequence{9}, Position{3}); }).find("sequence 9, expected 0 to ")
          == 0);
    CHECK(violation_of([&] { memory.unschedule(cellar::Sequence{0}, Position{-1}); })
          == "unschedule: position -1, expected 0 or more");
}

TEST_CASE("checkpoints: a scheduled position that was reached is not kept again after going back") {
    cellar::StateLimits limits = with_checkpoints(6, 0);
    limits.rollback = 4;
    Folding<> memory{shape(), limits};
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{6}));
    REQUIRE(feed(memory, text(0, 0, 6)));
    CHECK(checkpoints(memory, 0) == std::vector<int>{6});
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{4}, to_end));
    REQUIRE(feed(memory, text(0, 4, 4, 5)));
    CHECK(checkpoints(memory, 0).empty());
}

TEST_CASE("checkpoints: the policy spread keeps them spread over the text") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    for (int p = 0; p < 120; p += 10) REQUIRE(feed(memory, text(0, p, 10, p + 1)));
    CHECK(memory.statistics().checkpoints <= 6);
    const auto left = checkpoints(memory, 0);
    CHECK(left.size() == 6);
    int before = 0;
    for (const int p : left) {
        CHECK(holds(memory, 0, p, words(p)));
        CHECK(p - before <= 2 * 120 / 6); // at most twice the average distance
        before = p;
    }
    CHECK(before >= 116);
}

TEST_CASE("checkpoints: of two equally useful ones the older is dropped; one just made stays") {
    Folding<> memory{shape(), with_checkpoints(2, 0)};
    for (int p = 0; p < 20; p += 10) {
        REQUIRE(feed(memory, text(0, p, 10, p + 1)));
        REQUIRE(memory.checkpoint(cellar::Sequence{0}));
    }
    CHECK(checkpoints(memory, 0) == std::vector<int>{10, 20});
    REQUIRE(feed(memory, text(0, 20, 1, 21)));
    REQUIRE(memory.checkpoint(cellar::Sequence{0})); // its use is 1, but it was just made
    CHECK(checkpoints(memory, 0) == std::vector<int>{20, 21});
    REQUIRE(feed(memory, text(1, 0, 5)));
    REQUIRE(memory.checkpoint(cellar::Sequence{1})); // drops that of sequence 0 at 21
    CHECK(checkpoints(memory, 0) == std::vector<int>{20});
    CHECK(checkpoints(memory, 1) == std::vector<int>{5});
    CHECK(kept(memory, 0) == std::vector<int>{20, 21}); // it is still the current state
}

TEST_CASE("checkpoints: a pass makes as many as have room, the newest of each sequence first") {
    Folding<> memory{shape(), with_checkpoints(3, 2)};
    auto pass = memory.begin(batch_of(text(0, 0, 16) + text(1, 0, 5)));
    REQUIRE(pass);
    fold(*pass, text(0, 0, 16) + text(1, 0, 5));
    const int used = memory.statistics().used;
    CHECK(used == 5); // 12, 14 and 16 of sequence 0; 4 and 5 of sequence 1
    pass->commit();
    CHECK(memory.statistics().checkpoints == 3);
}

TEST_CASE("checkpoints: a shared one counts once and outlives the sequence that made it") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 9)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{8}));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{2}, Position{9}));
    CHECK(memory.statistics().checkpoints == 2);
    CHECK(checkpoints(memory, 1) == std::vector<int>{4, 8});
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, to_end));
    CHECK(memory.statistics().checkpoints == 2);
    REQUIRE(memory.remove(cellar::Sequence{1}, Position{4}, to_end));
    CHECK(holds(memory, 1, 4, words(4)));
    REQUIRE(memory.remove(cellar::Sequence{1}, Position{0}, to_end));
    REQUIRE(memory.remove(cellar::Sequence{2}, Position{0}, to_end));
    CHECK(memory.statistics().used == 0);
    CHECK(memory.statistics().checkpoints == 0);
}

TEST_CASE("checkpoints: one that is dropped is kept as a state while the rollback reaches it") {
    cellar::StateLimits limits = with_checkpoints(1, 2, 1);
    limits.rollback = 3;
    Folding<> memory{shape(), limits};
    REQUIRE(feed(memory, text(0, 0, 4)));
    CHECK(memory.statistics().checkpoints == 1);
    CHECK(kept(memory, 0) == std::vector<int>{1, 2, 3, 4});
    REQUIRE(feed(memory, text(0, 4, 4, 5)));
    CHECK(memory.statistics().checkpoints == 1);
    for (const int p : {5, 6, 7, 8}) CHECK(holds(memory, 0, p, words(p)));
}

TEST_CASE("checkpoints: the policy newest keeps those that were made last") {
    cellar::StateLimits limits = with_checkpoints(3, 4);
    limits.checkpoint_policy = cellar::CheckpointPolicy::newest;
    Folding<> memory{shape(), limits};
    for (int p = 0; p < 40; p += 10) REQUIRE(feed(memory, text(0, p, 10, p + 1)));
    CHECK(checkpoints(memory, 0) == std::vector<int>{20, 28, 40}); // with three kept, a pass has room for one
    REQUIRE(feed(memory, text(1, 0, 4)));
    CHECK(checkpoints(memory, 0) == std::vector<int>{28, 40});
    CHECK(checkpoints(memory, 1) == std::vector<int>{4});
    for (const int p : {28, 40}) CHECK(holds(memory, 0, p, words(p)));
}

TEST_CASE("checkpoints: a shared one has its largest use among its sequences") {
    Folding<> memory{shape(), with_checkpoints(2, 0)};
    REQUIRE(feed(memory, text(0, 0, 20)));
    REQUIRE(memory.checkpoint(cellar::Sequence{0}));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1},
                               Position{20})); // the use of 20 is 20 in both sequences
    REQUIRE(feed(memory, text(1, 20, 4, 21)));
    REQUIRE(memory.checkpoint(cellar::Sequence{1})); // the use of 24 is 4
    REQUIRE(feed(memory, text(2, 0, 6)));
    REQUIRE(memory.checkpoint(cellar::Sequence{2}));
    CHECK(checkpoints(memory, 0) == std::vector<int>{20});
    CHECK(checkpoints(memory, 1) == std::vector<int>{20});
    CHECK(checkpoints(memory, 2) == std::vector<int>{6});
}

} // namespace test_checkpoints
