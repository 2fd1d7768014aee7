// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrent/folding.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace test_pass {

using namespace recurrent_test;
using cellar::HostBackend;
using cellar::MicroBatch;
using cellar::Reason;

TEST_CASE_TEMPLATE("pass: states continue from pass to pass, for each sequence", Backend, HostBackend,
                   cellar::EigenBackend) {
    for (const bool in_place : {false, true}) {
        CAPTURE(in_place);
        Folding<Backend> memory{shape(), {.sequences = 3, .batch = 8}};
        REQUIRE(feed(memory, text(0, 0, 3) + text(2, 0, 3, 50), in_place));
        CHECK(holds(memory, 0, 3, words(3)));
        CHECK(holds(memory, 2, 3, words(3, 50)));
        CHECK(memory.kept(Sequence{1}).empty());
        REQUIRE(feed(memory, text(2, 3, 1, 53) + text(0, 3, 1, 4) + text(1, 0, 1, 90), in_place));
        CHECK(holds(memory, 0, 4, words(4)));
        CHECK(holds(memory, 1, 1, words(1, 90)));
        CHECK(holds(memory, 2, 4, words(4, 50)));
        CHECK(memory.next(Sequence{2}) == Position{4});
    }
}

TEST_CASE("pass: equal numbers of tokens are one micro-batch") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 12}};
    const auto tokens = text(1, 0, 4) + text(0, 0, 4) + text(2, 0, 4);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    REQUIRE(pass->micro_batches().size() == 1);
    const MicroBatch& micro_batch = pass->micro_batches()[0];
    CHECK(micro_batch.sequences() == 3);
    CHECK(micro_batch.length() == 4);
    CHECK(micro_batch.sequence(0) == Sequence{1});
    CHECK(micro_batch.tokens(1)[0] == 4);
    const auto state = pass->get<Wide>(0, micro_batch);
    CHECK(state.is_contiguous());
    CHECK(state.extent(0) == 3);
    CHECK(state.extent(1) == rows);
    CHECK(state.extent(2) == columns);
}

TEST_CASE("pass: a dropped pass changes nothing, and the next one takes the same slots") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    const auto before = memory.statistics();
    const auto tokens = text(0, 3, 2, 4) + text(1, 0, 1);
    std::vector<int> targets[2];
    for (auto& list : targets) {
        auto pass = memory.begin(batch_of(tokens));
        REQUIRE(pass);
        CHECK(memory.statistics().used > before.used);
        for (const MicroBatch& micro_batch : pass->micro_batches())
            for (const cellar::Slot slot : micro_batch.targets()) list.push_back(slot);
        fold(*pass, tokens);
        pass->drop();
        CHECK(memory.statistics() == before);
        CHECK(kept(memory, 0) == std::vector<int>{2, 3});
        CHECK(holds(memory, 0, 3, words(3)));
        CHECK(memory.kept(Sequence{1}).empty());
    }
    CHECK(targets[0] == targets[1]);
    CHECK(targets[0].size() == 3);
    REQUIRE(feed(memory, tokens));
    CHECK(holds(memory, 0, 5, words(5)));
}

TEST_CASE("pass: a pass that is dropped between get and put leaves nothing to the next one") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 8}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    {
        auto pass = memory.begin(batch_of(text(0, 3, 1, 90)));
        REQUIRE(pass);
        fold_wide(row(pass->get<Wide>(0, pass->micro_batches()[0]), 0), 90, 0);
    }
    REQUIRE(feed(memory, text(0, 3, 1, 4)));
    CHECK(holds(memory, 0, 4, words(4)));
}

TEST_CASE("pass: unequal batches are split into rectangles") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 16}};
    const auto tokens = text(0, 0, 5) + text(1, 0, 2) + text(2, 0, 5);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    REQUIRE(pass->micro_batches().size() == 2);
    CHECK(pass->micro_batches()[0].sequences() == 3);
    CHECK(pass->micro_batches()[0].length() == 2);
    CHECK(pass->micro_batches()[1].sequences() == 2);
    CHECK(pass->micro_batches()[1].length() == 3);
    const MicroBatch& last = pass->micro_batches()[1];
    CHECK(last.sequence(1) == Sequence{2});
    CHECK(last.tokens(1).size() == 3);
    CHECK(last.tokens(1)[0] == 9);
    CHECK(last.sources()[1] == last.targets()[1]); // in place: the state in between is not kept
    pass->drop();
    REQUIRE(feed(memory, tokens));
    CHECK(holds(memory, 0, 5, words(5)));
    CHECK(holds(memory, 1, 2, words(2)));
    CHECK(holds(memory, 2, 5, words(5)));
}

TEST_CASE("pass: a kept state ends a micro-batch; other states are overwritten in place") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 16, .rollback = 2}};
    auto pass = memory.begin(batch_of(text(0, 0, 10)));
    REQUIRE(pass);
    std::vector<int> lengths;
    for (const MicroBatch& micro_batch : pass->micro_batches()) lengths.push_back(micro_batch.length());
    CHECK(lengths == std::vector<int>{8, 1, 1});
}

TEST_CASE("pass: sequences may be mixed in any order") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    const std::vector<Token> mixed{{1, 0, 50}, {0, 0, 1}, {1, 1, 51}, {0, 1, 2}, {0, 2, 3}};
    REQUIRE(feed(memory, mixed));
    CHECK(holds(memory, 0, 3, words(3)));
    CHECK(holds(memory, 1, 2, words(2, 50)));
}

TEST_CASE("pass: no micro-batch ends among tokens at one position") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 8, .rollback = 1}};
    const std::vector<Token> image{{0, 0, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 2, 5}};
    REQUIRE(feed(memory, image));
    CHECK(kept(memory, 0) == std::vector<int>{2, 3});
    CHECK(holds(memory, 0, 2, words(4)));
    CHECK(holds(memory, 0, 3, words(5)));
    CHECK(memory.begin(batch_of({{0, 2, 6}})).error() == Reason::not_next); // not across batches
}

TEST_CASE("pass: an empty batch has no micro-batches") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 8}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    auto pass = memory.begin(cellar::Batch{});
    REQUIRE(pass);
    CHECK(pass->micro_batches().empty());
    pass->commit();
    CHECK(holds(memory, 0, 3, words(3)));
}

TEST_CASE("pass: refusals name the reason and change nothing") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 6, .rollback = 1, .unequal = cellar::Unequal::refuse}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    const auto before = memory.statistics();
    const auto refused = [&](const std::vector<Token>& tokens) { return memory.begin(batch_of(tokens)).error(); };
    CHECK(refused(text(0, 3, 7)) == Reason::batch_too_long);
    CHECK(refused(text(0, 2, 1)) == Reason::not_next);
    CHECK(refused(text(0, 4, 1)) == Reason::not_next);
    CHECK(refused(text(1, 1, 1)) == Reason::not_next);
    CHECK(refused(text(1, 0, 2) + text(0, 0, 2)) == Reason::not_next);
    CHECK(refused({{0, 3, 1}, {0, 5, 1}}) == Reason::not_next);
    CHECK(refused({{1, 0, 1}, {1, 1, 1}, {1, 0, 1}}) == Reason::not_next);
    const auto unequal = refused(text(0, 3, 2) + text(1, 0, 3));
    CHECK(unequal == Reason::unequal_batch);
    CHECK(to_string(unequal)
          == "unequal batch: the sequences have different numbers of tokens; one has 3, another has 2");
    CHECK(memory.statistics() == before);
    CHECK(kept(memory, 0) == std::vector<int>{2, 3});
    CHECK(holds(memory, 0, 3, words(3)));
    CHECK(memory.kept(Sequence{1}).empty());
    REQUIRE(feed(memory, text(0, 3, 2, 4) + text(1, 0, 2)));
    CHECK(holds(memory, 0, 5, words(5)));
}

TEST_CASE("pass: a tree of drafts is refused, because a state follows one branch") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 6, .rollback = 2}};
    REQUIRE(feed(memory, text(0, 0, 3) + text(1, 0, 2)));
    const auto refusal = [&](const cellar::BatchBuilder& batch) {
        return refusal_of(memory, [&] { return memory.begin(batch); });
    };
    const auto draft = [](int sequence, int position) {
        return cellar::BatchBuilder{Sequence{sequence}, Position{position}};
    };
    CHECK(refusal(draft(0, 3).add_child(0).add_child(0)) == Reason::cannot_branch);
    CHECK(refusal(draft(0, 3).add_child(0).add_child(1).add_child(0)) == Reason::cannot_branch);
    CHECK(refusal(draft(1, 2).add(Sequence{0}, Position{3}).add_child(1).add_child(1)) == Reason::cannot_branch);
    const std::vector<int> positions{3, 3}, sequences{0, 0}, two_roots{-1, -1};
    CHECK(
        refusal_of(memory,
                   [&] { return memory.begin({.positions = positions, .sequences = sequences, .parents = two_roots}); })
        == Reason::cannot_branch);
    // One branch is no tree, and two tokens at a position without parents are those of an image.
    CHECK(memory.begin(draft(1, 2).add(Sequence{0}, Position{3}).add_child(1).add_child(0)));
    CHECK(memory.begin({.positions = positions, .sequences = sequences}));
}

TEST_CASE("pass: one that was prepared and never begun leaves nothing to the next one") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 8, .rollback = 1}};
    const auto prepare = [&] { CHECK(memory.prepare(cellar::op::Begin{batch_of(text(0, 0, 3) + text(1, 0, 3, 40))})); };
    prepare();
    REQUIRE(feed(memory, text(2, 0, 5)));
    CHECK(memory.statistics().used == 2);
    CHECK(holds(memory, 2, 5, words(5)));
    prepare();
    {
        auto pass = memory.reserve(4);
        CHECK(memory.statistics().used == 2 + 3);
        pass.drop();
    }
    CHECK(memory.statistics().used == 2);
}

TEST_CASE("pass: the kept states of a long rollback move rarely, however many there are") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 1, .rollback = 100}};
    int moved = 0;
    for (int p = 0; p < 1000; ++p) {
        const cellar::KeptState* const last = p == 0 ? nullptr : &memory.kept(Sequence{0}).back();
        REQUIRE(feed(memory, text(0, p, 1, p + 1)));
        const auto kept = memory.kept(Sequence{0});
        if (p > 0 && last != &kept[kept.size() - 2]) ++moved;
    }
    CHECK(moved <= 10);
    CHECK(memory.kept(Sequence{0}).size() == 101);
    for (const int p : {900, 950, 1000}) CHECK(holds(memory, 0, p, words(p)));
}

} // namespace test_pass
