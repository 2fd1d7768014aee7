// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults of other recurrent memories. Each test shows that cellar does not have the fault; comments describe the fault.
#include "../recurrent/folding.hpp"
#include "../violations.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace test_states {

using namespace recurrent_test;
using cellar::MicroBatch;
using cellar::Reason;
using cellar::to_end;

namespace {

cellar::StateLimits with_checkpoints(int count, int interval, int sequences = 3) {
    return {.sequences = sequences, .batch = 32, .checkpoints = count, .checkpoint_interval = interval};
}

} // namespace

TEST_CASE("a new sequence starts from zeros in a used slot") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    for (int round = 0; round < 5; ++round) {
        for (const int s : {0, 1}) REQUIRE(feed(memory, text(s, 0, 3, 10 * s + round)));
        for (const int s : {0, 1}) CHECK(holds(memory, s, 3, words(3, 10 * s + round)));
        for (const int s : {0, 1}) REQUIRE(memory.remove(cellar::Sequence{s}, Position{0}, to_end));
    }
}

TEST_CASE("a token that is fed twice or left out is refused") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    for (const auto& tokens : {text(0, 2, 1), text(0, 4, 1), text(0, 3, 2) + text(0, 6, 1), text(1, 1, 1)})
        CHECK(memory.begin(batch_of(tokens)).error() == Reason::not_next);
    CHECK(holds(memory, 0, 3, words(3)));
    CHECK(memory.kept(cellar::Sequence{1}).empty());
}

TEST_CASE("a reserved pass takes no slots and changes no state") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 8, .rollback = 1}};
    for (int s = 0; s < 3; ++s) REQUIRE(feed(memory, text(s, 0, 3, 10 * s)));
    const auto before = memory.statistics();
    for (const int tokens : {0, 1, 2, 3, 7, 8}) {
        CAPTURE(tokens);
        auto pass = memory.reserve(tokens);
        CHECK(pass.tokens() == tokens);
        int found = 0;
        for (const MicroBatch& micro_batch : pass.micro_batches())
            found += micro_batch.sequences() * micro_batch.length();
        CHECK(found == tokens);
        CHECK(pass.micro_batches().size() == (tokens == 0 ? 0 : tokens % 3 == 0 || tokens < 3 ? 1 : 2));
        fold(pass, text(0, 0, tokens));
        pass.commit();
        CHECK(memory.statistics() == before);
        for (int s = 0; s < 3; ++s) CHECK(holds(memory, s, 3, words(3, 10 * s)));
    }
}

TEST_CASE("a pass with an unwritten layer cannot be committed") {
    // The fault: a restored state came from different tokens in different layers.
    Folding<> memory{shape(), {.sequences = 1, .batch = 6, .rollback = 1}};
    const auto tokens = text(0, 0, 3);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    CHECK(violation_of([&] { pass->commit(); }) == "commit: 0 micro-batches of layer 0 were put, expected 2");
    fold_micro_batch(*pass, tokens, 0, pass->micro_batches()[0], false);
    fold_micro_batch(*pass, tokens, 1, pass->micro_batches()[0], true);
    fold_micro_batch(*pass, tokens, 1, pass->micro_batches()[1], false);
    CHECK(violation_of([&] { pass->commit(); }) == "commit: 1 micro-batches of layer 0 were put, expected 2");
    fold_micro_batch(*pass, tokens, 0, pass->micro_batches()[1], true);
    pass->commit();
    CHECK(holds(memory, 0, 3, words(3)));
}

TEST_CASE("going back to a shared state leaves it to the other sequences") {
    Folding<> memory{shape(), with_checkpoints(3, 4)};
    REQUIRE(feed(memory, text(0, 0, 6)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{6}));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{4}, to_end));
    for (const bool in_place : {false, true}) {
        REQUIRE(feed(memory, text(0, memory.next(cellar::Sequence{0}).value, 2, 90), in_place));
        CHECK(holds(memory, 1, 4, words(4)));
        CHECK(holds(memory, 1, 6, words(6)));
    }
    REQUIRE(memory.remove(cellar::Sequence{1}, Position{4}, to_end));
    CHECK(holds(memory, 1, 4, words(4)));
    CHECK(holds(memory, 0, 4, words(4)));
}

TEST_CASE("a new sequence has no checkpoints of others") {
    // The fault: checkpoints belonged to slots, and stayed when a slot got another owner.
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 9)));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, to_end));
    CHECK_FALSE(memory.can_resume(cellar::Sequence{0}, Position{4}));
    REQUIRE(feed(memory, text(0, 0, 3, 70)));
    CHECK_FALSE(memory.can_resume(cellar::Sequence{0}, Position{4}));
    REQUIRE(feed(memory, text(1, 0, 9, 30)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{3}));
    CHECK(memory.resumable_prefix(cellar::Sequence{1}, Position{9}) == Position{3});
    CHECK(holds(memory, 1, 3, words(3, 70)));
    CHECK(memory.statistics().checkpoints == 0);
}

TEST_CASE("a copy of an empty sequence clears the target's checkpoints") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(1, 0, 9)));
    REQUIRE(memory.schedule(cellar::Sequence{1}, Position{10}));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{9}));
    CHECK(memory.kept(cellar::Sequence{1}).empty());
    CHECK(memory.statistics().used == 0);
    CHECK(memory.resumable_prefix(cellar::Sequence{1}, Position{9}) == Position{0});
    REQUIRE(feed(memory, text(1, 0, 3, 70)));
    CHECK(memory.resumable_prefix(cellar::Sequence{1}, Position{9}) == Position{3});
    REQUIRE(feed(memory, text(1, 3, 8, 73))); // the schedule for 10 went with the old text
    CHECK(kept(memory, 1) == std::vector<int>{4, 8, 11});
}

TEST_CASE("a prefix is copied only where a state is kept") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 16, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 6)));
    REQUIRE(feed(memory, text(1, 0, 2, 40)));
    const auto before = memory.statistics();
    CHECK(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{4}).error() == Reason::cannot_rewind);
    CHECK(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{0}, Position{4})
              .has_value()); // onto itself: changes nothing
    CHECK(memory.statistics() == before);
    CHECK(kept(memory, 0) == std::vector<int>{5, 6});
    CHECK(holds(memory, 1, 2, words(2, 40)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{5}));
    CHECK(holds(memory, 1, 5, words(5)));
    CHECK(memory.next(cellar::Sequence{1}) == Position{5});
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1},
                               Position{100})); // longer than the source: all of it
    CHECK(holds(memory, 1, 6, words(6)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{0}));
    CHECK(memory.kept(cellar::Sequence{1}).empty());
}

TEST_CASE("going back to where no state is kept is refused") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 10)));
    for (const int p : {1, 3, 5, 7, 9}) {
        CHECK(memory.remove(cellar::Sequence{0}, Position{p}, to_end).error() == Reason::cannot_rewind);
        CHECK(kept(memory, 0) == std::vector<int>{4, 8, 10});
    }
    CHECK(memory.resumable_prefix(cellar::Sequence{0}, Position{7}) == Position{4});
}

TEST_CASE("a pass between choosing a checkpoint and going back to it restores no other state") {
    // The fault: going back took two calls, and the first one only noted the place of the checkpoint.
    Folding<> memory{shape(), with_checkpoints(2, 4)};
    REQUIRE(feed(memory, text(0, 0, 6)));
    const Position chosen = memory.resumable_prefix(cellar::Sequence{0}, Position{5});
    REQUIRE(chosen == Position{4});
    REQUIRE(feed(memory, text(1, 0, 4, 50)));
    REQUIRE(memory.remove(cellar::Sequence{0}, chosen, to_end)); // both checkpoints had room
    CHECK(holds(memory, 0, 4, words(4)));

    REQUIRE(feed(memory, text(0, 4, 2, 5)));
    for (int p = 4; p < 40; p += 12) REQUIRE(feed(memory, text(1, p, 12, 50 + p)));
    CHECK(memory.remove(cellar::Sequence{0}, chosen, to_end).error()
          == Reason::cannot_rewind); // it was dropped for newer ones
    CHECK(holds(memory, 0, 6, words(6)));
}

TEST_CASE("after going back, checkpoints are made at the same positions") {
    // The fault: the interval was counted from a checkpoint that was gone.
    cellar::StateLimits limits = with_checkpoints(12, 4, 1);
    limits.rollback = 5;
    Folding<> memory{shape(), limits};
    for (int p = 0; p < 15; ++p) REQUIRE(feed(memory, text(0, p, 1, p + 1)));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{11}, to_end));
    for (int p = 11; p < 26; ++p) REQUIRE(feed(memory, text(0, p, 1, p + 1)));
    for (const int p : {4, 8, 12, 16, 20, 24}) CHECK(holds(memory, 0, p, words(p)));
}

TEST_CASE("a long prompt resumes from a checkpoint within it") {
    // The fault: the only kept state was at the end of the prompt, and the new prompt had only its beginning.
    Folding<> memory{shape(), {.sequences = 2, .batch = 2000, .checkpoints = 15, .checkpoint_interval = 128}};
    REQUIRE(feed(memory, text(0, 0, 2000)));
    const Position known = memory.resumable_prefix(cellar::Sequence{0}, Position{1900});
    CHECK(known == Position{1792});
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, known));
    CHECK(holds(memory, 1, 1792, words(1792)));
}

TEST_CASE("generated tokens get checkpoints, too") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 6)));
    for (int p = 6; p < 18; ++p) REQUIRE(feed(memory, text(0, p, 1, p + 1)));
    CHECK(kept(memory, 0) == std::vector<int>{4, 8, 12, 16, 18});
}

TEST_CASE("a cancelled prompt keeps the earlier checkpoints and leaks none") {
    Folding<> memory{shape(), with_checkpoints(15, 4)};
    REQUIRE(feed(memory, text(0, 0, 5)));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{7}));
    const auto before = memory.statistics();
    for (int tries = 0; tries < 3; ++tries) {
        auto pass = memory.begin(batch_of(text(0, 5, 20)));
        REQUIRE(pass);
        fold(*pass, text(0, 5, 20));
        pass->drop();
        CHECK(memory.statistics() == before);
        CHECK(kept(memory, 0) == std::vector<int>{4, 5});
    }
    REQUIRE(feed(memory, text(0, 5, 5, 6)));
    CHECK(kept(memory, 0) == std::vector<int>{4, 7, 8, 10});
}

TEST_CASE("a sequence that ends before a scheduled checkpoint leaks none") {
    Folding<> memory{shape(), with_checkpoints(3, 0)};
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{5}));
    REQUIRE(memory.schedule(cellar::Sequence{0}, Position{9}));
    REQUIRE(feed(memory, text(0, 3, 3, 4))); // the checkpoint at 5 is made
    CHECK(memory.statistics().checkpoints == 1);
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, to_end));
    CHECK(memory.statistics().used == 0);
    CHECK(memory.statistics().checkpoints == 0);
}

TEST_CASE("checkpoints take no more memory than is counted") {
    // The fault: each checkpoint was a view that kept the memory of a whole pass alive.
    Folding<> memory{shape(), with_checkpoints(6, 4, 2)};
    for (int p = 0; p < 320; p += 16) {
        REQUIRE(feed(memory, text(0, p, 16, p + 1) + text(1, p, 16, p + 1)));
        const auto all = memory.statistics();
        CHECK(all.checkpoints <= 6);
        CHECK(all.used <= 2 + all.checkpoints); // two for the current states
    }
    CHECK(memory.bytes() <= (2 * 2 + 8) * state_bytes + 2 * state_bytes); // all slots, and the rows that `get` fills
}

TEST_CASE("a state is a float by default, and large sums keep growing") {
    struct Sum : cellar::StateTensor<1> {}; // the default element type
    cellar::RecurrentMemory<cellar::States<Sum>> memory{cellar::StateShape{1, {{1}}}, {}};
    for (int p = 0; p < 5000; ++p) {
        auto pass = memory.begin(batch_of(text(0, p, 1)));
        REQUIRE(pass);
        pass->get<Sum>(0, pass->micro_batches()[0])(0, 0) += 1;
        pass->put(0, pass->micro_batches()[0]);
        pass->commit();
    }
    CHECK(memory.view<Sum>(0, memory.state(cellar::Sequence{0}))(0) == 5000);
}

TEST_CASE("a state is not freed twice") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{3}));
    auto pass = memory.begin(batch_of(text(0, 3, 1, 4)));
    REQUIRE(pass);
    pass->drop();
    pass->drop();
    CHECK(violation_of([&] { pass->commit(); })
          == "the pass is over, expected one that was not committed, dropped or moved from");
    for (int i = 0; i < 2; ++i) REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, to_end));
    CHECK(memory.statistics().used == 1);
    CHECK(holds(memory, 1, 3, words(3)));
}

} // namespace test_states
