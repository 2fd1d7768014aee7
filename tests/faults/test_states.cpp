// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults of other recurrent memories, each as its symptom.
#include "../recurrent/folding.hpp"
#include "../violations.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace recurrent_test;
using cellar::MicroBatch;
using cellar::Reason;
using cellar::to_end;

namespace {

cellar::StateLimits with_checkpoints(int count, int interval, int sequences = 3) {
    return {.sequences = sequences, .batch = 32, .checkpoints = count, .checkpoint_interval = interval};
}

} // namespace

TEST_CASE("a new sequence goes on from the state that the last owner of its slot left") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    for (int round = 0; round < 5; ++round) {
        for (const int s : {0, 1}) REQUIRE(feed(memory, text(s, 0, 3, 10 * s + round)));
        for (const int s : {0, 1}) CHECK(holds(memory, s, 3, words(3, 10 * s + round)));
        for (const int s : {0, 1}) REQUIRE(memory.remove({s}, {0}, to_end));
    }
}

TEST_CASE("a token fed twice, or left out, goes into the state unnoticed") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    for (const auto& tokens : {text(0, 2, 1), text(0, 4, 1), text(0, 3, 2) + text(0, 6, 1), text(1, 1, 1)})
        CHECK(memory.begin(batch_of(tokens)).error() == Reason::not_next);
    CHECK(holds(memory, 0, 3, words(3)));
    CHECK(memory.kept({1}).empty());
}

TEST_CASE("a reserved pass takes slots away, or writes where a state lies") {
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

TEST_CASE("a checkpoint is kept that some layers never wrote") {
    // What was restored later was of different tokens in different layers.
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

TEST_CASE("going back to a shared state and on from there overwrites it for the others") {
    Folding<> memory{shape(), with_checkpoints(3, 4)};
    REQUIRE(feed(memory, text(0, 0, 6)));
    REQUIRE(memory.copy_prefix({0}, {1}, 6));
    REQUIRE(memory.remove({0}, {4}, to_end));
    for (const bool in_place : {false, true}) {
        REQUIRE(feed(memory, text(0, memory.next({0}).value, 2, 90), in_place));
        CHECK(holds(memory, 1, 4, words(4)));
        CHECK(holds(memory, 1, 6, words(6)));
    }
    REQUIRE(memory.remove({1}, {4}, to_end));
    CHECK(holds(memory, 1, 4, words(4)));
    CHECK(holds(memory, 0, 4, words(4)));
}

TEST_CASE("a new sequence goes back to a stranger's checkpoint") {
    // Checkpoints belonged to slots, and stayed when these got another owner.
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 9)));
    REQUIRE(memory.remove({0}, {0}, to_end));
    CHECK_FALSE(memory.can_resume({0}, {4}));
    REQUIRE(feed(memory, text(0, 0, 3, 70)));
    CHECK_FALSE(memory.can_resume({0}, {4}));
    REQUIRE(feed(memory, text(1, 0, 9, 30)));
    REQUIRE(memory.copy_prefix({0}, {1}, 3));
    CHECK(memory.resumable_prefix({1}, {9}) == Position{3});
    CHECK(holds(memory, 1, 3, words(3, 70)));
    CHECK(memory.statistics().checkpoints == 0);
}

TEST_CASE("a copy of an empty sequence leaves the target its old checkpoints") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(1, 0, 9)));
    REQUIRE(memory.schedule({1}, {10}));
    REQUIRE(memory.copy_prefix({0}, {1}, 9));
    CHECK(memory.kept({1}).empty());
    CHECK(memory.statistics().used == 0);
    CHECK(memory.resumable_prefix({1}, {9}) == Position{0});
    REQUIRE(feed(memory, text(1, 0, 3, 70)));
    CHECK(memory.resumable_prefix({1}, {9}) == Position{3});
    REQUIRE(feed(memory, text(1, 3, 8, 73))); // 10 was asked for by a text that is gone
    CHECK(kept(memory, 1) == std::vector<int>{4, 8, 11});
}

TEST_CASE("a copied prefix shares a state that is too far ahead") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 16, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 6)));
    REQUIRE(feed(memory, text(1, 0, 2, 40)));
    const auto before = memory.statistics();
    CHECK(memory.copy_prefix({0}, {1}, 4).error() == Reason::cannot_rewind);
    CHECK(memory.copy_prefix({0}, {0}, 4).has_value()); // onto itself: nothing
    CHECK(memory.statistics() == before);
    CHECK(kept(memory, 0) == std::vector<int>{5, 6});
    CHECK(holds(memory, 1, 2, words(2, 40)));
    REQUIRE(memory.copy_prefix({0}, {1}, 5));
    CHECK(holds(memory, 1, 5, words(5)));
    CHECK(memory.next({1}) == Position{5});
    REQUIRE(memory.copy_prefix({0}, {1}, 100)); // more than there is: all
    CHECK(holds(memory, 1, 6, words(6)));
    REQUIRE(memory.copy_prefix({0}, {1}, 0));
    CHECK(memory.kept({1}).empty());
}

TEST_CASE("going back to where no state is kept silently goes back further") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 10)));
    for (const int p : {1, 3, 5, 7, 9}) {
        CHECK(memory.remove({0}, {p}, to_end).error() == Reason::cannot_rewind);
        CHECK(kept(memory, 0) == std::vector<int>{4, 8, 10});
    }
    CHECK(memory.resumable_prefix({0}, {7}) == Position{4});
}

TEST_CASE("a pass between choosing a checkpoint and going back to it puts another one in its place") {
    // Going back took two steps, and the first only remembered where the checkpoint was.
    Folding<> memory{shape(), with_checkpoints(2, 4)};
    REQUIRE(feed(memory, text(0, 0, 6)));
    const Position chosen = memory.resumable_prefix({0}, {5});
    REQUIRE(chosen == Position{4});
    REQUIRE(feed(memory, text(1, 0, 4, 50)));
    REQUIRE(memory.remove({0}, chosen, to_end)); // there was room for both
    CHECK(holds(memory, 0, 4, words(4)));

    REQUIRE(feed(memory, text(0, 4, 2, 5)));
    for (int p = 4; p < 40; p += 12) REQUIRE(feed(memory, text(1, p, 12, 50 + p)));
    CHECK(memory.remove({0}, chosen, to_end).error() == Reason::cannot_rewind); // it had to go
    CHECK(holds(memory, 0, 6, words(6)));
}

TEST_CASE("after going back the next checkpoint comes late") {
    // The interval was counted from a checkpoint that was gone.
    cellar::StateLimits limits = with_checkpoints(12, 4, 1);
    limits.rollback = 5;
    Folding<> memory{shape(), limits};
    for (int p = 0; p < 15; ++p) REQUIRE(feed(memory, text(0, p, 1, p + 1)));
    REQUIRE(memory.remove({0}, {11}, to_end));
    for (int p = 11; p < 26; ++p) REQUIRE(feed(memory, text(0, p, 1, p + 1)));
    for (const int p : {4, 8, 12, 16, 20, 24}) CHECK(holds(memory, 0, p, words(p)));
}

TEST_CASE("a long prompt is fed again from its beginning, although most of it is known") {
    // The only state was the one behind the prompt, of which another had but a micro_batch.
    Folding<> memory{shape(), {.sequences = 2, .batch = 2000, .checkpoints = 15, .checkpoint_interval = 128}};
    REQUIRE(feed(memory, text(0, 0, 2000)));
    const Position known = memory.resumable_prefix({0}, {1900});
    CHECK(known == Position{1792});
    REQUIRE(memory.copy_prefix({0}, {1}, known.value));
    CHECK(holds(memory, 1, 1792, words(1792)));
}

TEST_CASE("what was generated has no checkpoint, only what came in prompts") {
    Folding<> memory{shape(), with_checkpoints(6, 4)};
    REQUIRE(feed(memory, text(0, 0, 6)));
    for (int p = 6; p < 18; ++p) REQUIRE(feed(memory, text(0, p, 1, p + 1)));
    CHECK(kept(memory, 0) == std::vector<int>{4, 8, 12, 16, 18});
}

TEST_CASE("a cancelled prompt leaks its checkpoints, or loses those from before") {
    Folding<> memory{shape(), with_checkpoints(15, 4)};
    REQUIRE(feed(memory, text(0, 0, 5)));
    REQUIRE(memory.schedule({0}, {7}));
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

TEST_CASE("a sequence that ends before a scheduled checkpoint leaks it") {
    Folding<> memory{shape(), with_checkpoints(3, 0)};
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(memory.schedule({0}, {5}));
    REQUIRE(memory.schedule({0}, {9}));
    REQUIRE(feed(memory, text(0, 3, 3, 4))); // the first is taken
    CHECK(memory.statistics().checkpoints == 1);
    REQUIRE(memory.remove({0}, {0}, to_end));
    CHECK(memory.statistics().used == 0);
    CHECK(memory.statistics().checkpoints == 0);
}

TEST_CASE("checkpoints pin more memory than is counted for them") {
    // Each was a piece of the memory of a whole pass.
    Folding<> memory{shape(), with_checkpoints(6, 4, 2)};
    for (int p = 0; p < 320; p += 16) {
        REQUIRE(feed(memory, text(0, p, 16, p + 1) + text(1, p, 16, p + 1)));
        const auto all = memory.statistics();
        CHECK(all.checkpoints <= 6);
        CHECK(all.used <= 2 + all.checkpoints); // with the current states
    }
    CHECK(memory.bytes() <= (2 * 2 + 8) * state_bytes + 2 * state_bytes); // for all slots, and what `get` fills
}

TEST_CASE("a state that is summed up in halves stands still") {
    struct Sum : cellar::StateTensor<1> {}; // as it is declared without a thought
    cellar::RecurrentMemory<cellar::States<Sum>> memory{cellar::StateShape{1, {{1}}}, {}};
    for (int p = 0; p < 5000; ++p) {
        auto pass = memory.begin(batch_of(text(0, p, 1)));
        REQUIRE(pass);
        pass->get<Sum>(0, pass->micro_batches()[0])(0, 0) += 1;
        pass->put(0, pass->micro_batches()[0]);
        pass->commit();
    }
    CHECK(memory.view<Sum>(0, memory.state({0}))(0) == 5000);
}

TEST_CASE("a state is given back twice, unnoticed") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(memory.copy_prefix({0}, {1}, 3));
    auto pass = memory.begin(batch_of(text(0, 3, 1, 4)));
    REQUIRE(pass);
    pass->drop();
    pass->drop();
    CHECK(violation_of([&] { pass->commit(); })
          == "the pass is over, expected one that was not committed, dropped or moved from");
    for (int i = 0; i < 2; ++i) REQUIRE(memory.remove({0}, {0}, to_end));
    CHECK(memory.statistics().used == 1);
    CHECK(holds(memory, 1, 3, words(3)));
}
