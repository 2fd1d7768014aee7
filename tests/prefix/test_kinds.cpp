// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Prefix trees of memories that do not remember everything.
#include "../violations.hpp"
#include "reader.hpp"

#include <doctest/doctest.h>

#include <new>

namespace test_kinds {

using namespace cellar;
using namespace prefix_test;

namespace {

const List prompt = counted(100, 20);
const List question = prompt + counted(200, 5);
const List other_question = prompt + counted(300, 7);
const List third_question = prompt + counted(400, 3);

} // namespace

TEST_CASE("a window is attached where it is complete") {
    toy::Sliding memory = sliding();
    PrefixTree tree{memory};
    serve(tree, 0, question); // the tree has positions 19 to 24
    CHECK(tree.match(question + List{1}) == PrefixMatch{25, 25});
    CHECK(tree.attach(Sequence{1}, question + List{1}).value() == PrefixMatch{25, 25});
    CHECK(lacks(memory, 1, question) == "");
    CHECK(tree.match(first(24, question)) == PrefixMatch{24, 24});
    CHECK(tree.attach(Sequence{2}, first(23, question) + List{1}).value() == PrefixMatch{23, 23});
    CHECK(lacks(memory, 2, first(23, question)) == "");
    CHECK(tree.match(other_question) == PrefixMatch{0, 20}); // needs position 16
    CHECK(tree.attach(Sequence{3}, other_question).value() == PrefixMatch{0, 20});
    CHECK(memory.next(Sequence{3}) == Position{0});
}

TEST_CASE("a window that has forgotten nothing is attached anywhere, and divided") {
    toy::Sliding memory = sliding();
    PrefixTree tree{memory};
    serve(tree, 0, counted(0, 6));
    CHECK(serve(tree, 1, counted(0, 3) + counted(50, 10)).length == 3);
    CHECK(tree.statistics().snapshots == 3);
    CHECK(tree.attach(Sequence{2}, counted(0, 6)).value().length == 6);
    CHECK(tree.attach(Sequence{3}, counted(0, 3)).value().length == 3);
    CHECK(lacks(memory, 2, counted(0, 6)) == "");
}

TEST_CASE("what a window has forgotten is not inserted, and not divided") {
    toy::Sliding memory = sliding();
    PrefixTree tree{memory};
    REQUIRE(compute(memory, 0, counted(0, 9))); // the memory keeps positions 3 to 8
    CHECK(tree.insert(Sequence{0}, counted(0, 5)).error()
          == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{0}});
    CHECK(tree.statistics().nodes == 0);
    REQUIRE(compute(memory, 1, counted(0, 8)));
    REQUIRE(tree.insert(Sequence{1}, counted(0, 6))); // positions 2 to 5 are enough to go on from 6
    CHECK(tree.match(counted(0, 6)) == PrefixMatch{6, 6});
    CHECK(tree.match(counted(0, 5)) == PrefixMatch{5, 5});
    CHECK(tree.match(counted(0, 4)) == PrefixMatch{0, 4});
    CHECK(serve(tree, 2, counted(0, 4) + List{9}).length == 0); // keeps its own at 4, where they part
    CHECK(tree.match(counted(0, 4)) == PrefixMatch{4, 4});
    CHECK(tree.attach(Sequence{3}, counted(0, 6)).value() == PrefixMatch{6, 6});
    CHECK(lacks(memory, 3, counted(0, 6)) == "");
}

TEST_CASE("a scheduled prefix of a hybrid is inserted, though its window has passed where it parts from another") {
    Attention memory = attention(100, 6, 100);
    PrefixTree tree{memory};
    serve(tree, 0, counted(0, 12));
    const List list = counted(0, 6) + counted(50, 20);
    REQUIRE(memory.schedule(Sequence{1}, Position{18}));
    REQUIRE(compute(memory, 1, list));
    REQUIRE(tree.insert(Sequence{1}, first(18, list)));
    CHECK(audit(tree) == "");
    CHECK_FALSE(memory.can_resume(Sequence{1}, Position{18})); // the schedule has ended
    CHECK(tree.attach(Sequence{2}, list).value() == PrefixMatch{18, 18});
    CHECK(lacks(memory, 2, first(18, list)) == "");
}

TEST_CASE("a recurrent state is attached at exactly its position") {
    toy::Recurrent memory = recurrent(10);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(tree.match(question + List{1}) == PrefixMatch{25, 25});
    CHECK(serve(tree, 1, question + List{1}) == PrefixMatch{25, 25});
    CHECK(tree.attach(Sequence{2}, first(24, question)).value() == PrefixMatch{0, 24});
    CHECK(tree.attach(Sequence{2}, other_question).value() == PrefixMatch{0, 20});
    REQUIRE(compute(memory, 2, prompt));
    REQUIRE(tree.insert(Sequence{2}, prompt));
    CHECK(audit(tree) == "");
    CHECK(serve(tree, 3, other_question) == PrefixMatch{20, 20});
}

TEST_CASE("where two lists part, the second sequence's own state is kept if it has one there") {
    for (const bool remembers : {true, false}) {
        toy::Recurrent memory = recurrent(10, remembers ? 7 : 6);
        PrefixTree tree{memory};
        serve(tree, 0, question);
        CHECK(serve(tree, 1, other_question) == PrefixMatch{0, 20});
        CHECK(tree.statistics().nodes == 3);
        CHECK(tree.statistics().snapshots == (remembers ? 3 : 2));
        CHECK(serve(tree, 2, third_question) == PrefixMatch{remembers ? 20 : 0, 20});
        CHECK(tree.statistics().nodes == 4);
    }
}

TEST_CASE("a point where lists part gets a snapshot when it is inserted") {
    toy::Recurrent memory = recurrent(10);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, other_question);
    CHECK(tree.statistics().snapshots == 2);
    CHECK(serve(tree, 2, prompt) == PrefixMatch{0, 20});
    CHECK(tree.statistics().snapshots == 3);
    CHECK(tree.statistics().nodes == 3);
    CHECK(serve(tree, 3, third_question) == PrefixMatch{20, 20});
    leave(tree, 0);
    CHECK(tree.attach(Sequence{0}, other_question).value() == PrefixMatch{27, 27});
}

TEST_CASE("a hybrid is attached at the deepest point that all members can restore") {
    toy::Memory memory = hybrid(10);
    PrefixTree tree{memory};
    REQUIRE(compute(memory, 0, prompt));
    REQUIRE(tree.insert(Sequence{0}, prompt));
    serve(tree, 1, question);
    CHECK(tree.match(first(24, question)) == PrefixMatch{20, 24});
    CHECK(tree.attach(Sequence{2}, first(24, question)).value() == PrefixMatch{20, 24});
    CHECK(lacks(memory, 2, prompt) == "");
    CHECK(serve(tree, 3, other_question) == PrefixMatch{20, 20});
    leave(tree, 2);
    CHECK(tree.attach(Sequence{2}, question).value() == PrefixMatch{25, 25});
    CHECK(lacks(memory, 2, question) == "");
    CHECK(audit(memory.member<toy::Full>()) == "");
}

TEST_CASE("the snapshots of a chat follow one another, and each owns only what is new") {
    toy::Memory memory = hybrid(10, 60);
    PrefixTree tree{memory};
    List chat;
    for (int turn = 0; turn < 5; ++turn) {
        chat = chat + counted(100 * turn, 10);
        CHECK(serve(tree, turn % 2, chat).length == 10 * turn);
        leave(tree, turn % 2);
    }
    CHECK(memory.member<toy::Full>().statistics().free == 10);
    CHECK(memory.member<toy::Full>().statistics().shared == 0);
    CHECK(tree.attach(Sequence{3}, chat).value() == PrefixMatch{50, 50});
    CHECK(lacks(memory, 3, chat) == "");
}

TEST_CASE("a hybrid that has forgotten nothing is attached anywhere, and divided") {
    Attention memory = attention(100, 30, 60);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(serve(tree, 1, other_question) == PrefixMatch{20, 20});
    CHECK(tree.statistics().snapshots == 3);
    CHECK(memory.member<toy::Full>().statistics().free == 60 - 25 - 7);
    CHECK(memory.member<toy::Sliding>().statistics().free == 100 - 25 - 7);
    CHECK(serve(tree, 2, first(10, prompt)) == PrefixMatch{10, 10});
    for (int s = 0; s < 3; ++s) leave(tree, s);
    CHECK(tree.attach(Sequence{0}, question).value() == PrefixMatch{25, 25});
    CHECK(lacks(memory, 0, question) == "");
    CHECK(tree.attach(Sequence{1}, other_question).value() == PrefixMatch{27, 27});
    CHECK(lacks(memory, 1, other_question) == "");
}

TEST_CASE("a hybrid with a window that has moved on is not divided") {
    Attention memory = attention(100, 6, 60);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(serve(tree, 1, other_question) == PrefixMatch{0, 20}); // the window lacks what it needs there
    CHECK(tree.statistics().snapshots == 2);
    for (int s = 0; s < 2; ++s) leave(tree, s);
    CHECK(tree.attach(Sequence{0}, question).value() == PrefixMatch{25, 25});
    CHECK(lacks(memory, 0, question) == "");
}

TEST_CASE("a hybrid that cannot be divided keeps both branches whole") {
    toy::Memory memory = hybrid(10);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(serve(tree, 1, other_question) == PrefixMatch{0, 20});
    CHECK(tree.statistics().nodes == 3);
    CHECK(tree.statistics().snapshots == 2);
    CHECK(serve(tree, 2, prompt) == PrefixMatch{0, 20}); // the point where they part
    CHECK(serve(tree, 3, question + List{1}) == PrefixMatch{25, 25});
    for (int s = 0; s < 4; ++s) leave(tree, s);
    CHECK(tree.attach(Sequence{0}, other_question).value() == PrefixMatch{27, 27});
    CHECK(lacks(memory, 0, other_question) == "");
    CHECK(tree.attach(Sequence{1}, third_question).value() == PrefixMatch{20, 20});
    CHECK(lacks(memory, 1, prompt) == "");
}

TEST_CASE("where two lists part, a hybrid keeps the second sequence's own part if all members remember it") {
    toy::Memory memory{toy::layers, sliding(100, 20), full(100), recurrent(10, 7)};
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(serve(tree, 1, other_question) == PrefixMatch{0, 20});
    CHECK(tree.statistics().snapshots == 3);
    CHECK(serve(tree, 2, third_question) == PrefixMatch{20, 20});
    CHECK(memory.member<toy::Full>().statistics().free == 100 - 25 - 27 - 3);
}

namespace {

/// A memory of one's own, which refuses some restorations, or has no memory for them.
struct Reluctant : toy::Recurrent {
    using toy::Recurrent::Recurrent;

    Result<void> restore(Sequence s, const StateSnapshot& snapshot, Position to) {
        if (refusals > 0 && refusals-- > 0) return Reason::full;
        if (failures > 0 && failures-- > 0) throw std::bad_alloc{};
        return toy::Recurrent::restore(s, snapshot, to);
    }

    int refusals = 0;
    int failures = 0;
};

} // namespace

TEST_CASE("a restoration that is refused or fails is a shorter prefix, or none") {
    Reluctant memory{StateShape{1, {{1}}}, StateLimits{.sequences = 4, .batch = 8, .snapshots = 10}};
    PrefixTree tree{memory};
    for (const int length : {10, 15, 20}) {
        REQUIRE(compute(memory, 0, first(length, prompt)));
        REQUIRE(tree.insert(Sequence{0}, first(length, prompt)));
    }
    const auto attached = [&](int refusals, int failures) {
        memory.refusals = refusals;
        memory.failures = failures;
        leave(tree, 1);
        const PrefixMatch match = tree.attach(Sequence{1}, prompt).value();
        CHECK(memory.next(Sequence{1}) == Position{match.length});
        CHECK(match.verified == 20);
        CHECK(audit(tree) == "");
        return match.length;
    };
    CHECK(attached(0, 0) == 20);
    CHECK(attached(1, 0) == 15);
    CHECK(attached(0, 2) == 10);
    CHECK(attached(1, 1) == 10);
    CHECK(attached(3, 0) == 0);
    CHECK(tree.statistics().misses == 1);
    CHECK(tree.statistics().partial_hits == 3);
}

TEST_CASE("a snapshot that the memory refuses leaves the tree as it was") {
    toy::Recurrent memory = recurrent(10);
    PrefixTree tree{memory};
    REQUIRE(compute(memory, 0, question));
    CHECK(tree.insert(Sequence{0}, prompt).error() == Reason::cannot_rewind); // its state is further on
    CHECK(tree.statistics().nodes == 0);
    REQUIRE(tree.insert(Sequence{0}, question));
    CHECK(tree.insert(Sequence{0}, prompt).error() == Reason::cannot_rewind);
    CHECK(tree.insert(Sequence{0}, prompt + counted(300, 2)).error() == Reason::cannot_rewind);
    CHECK(tree.insert(Sequence{0}, prompt, 5).error() == Reason::cannot_rewind);
    CHECK(tree.statistics().nodes == 1);
    CHECK(tree.statistics().evictions == 0);
    CHECK(audit(tree) == "");
}

TEST_CASE("where there are too many snapshots, the least useful one makes room") {
    toy::Recurrent memory = recurrent(2);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, counted(0, 9));
    leave(tree, 0);
    CHECK(tree.attach(Sequence{0}, question).value().length == 25); // used later than the other one
    CHECK(serve(tree, 2, counted(50, 9)).length == 0);
    CHECK(tree.statistics().evictions == 1);
    CHECK(tree.match(question).length == 25);
    CHECK(tree.match(counted(0, 9)) == PrefixMatch{0, 0});
    const PrefixPin one = tree.pin(question);
    const PrefixPin two = tree.pin(counted(50, 9));
    REQUIRE(compute(memory, 3, counted(0, 9)));
    CHECK(tree.insert(Sequence{3}, counted(0, 9)).error() == Reason::too_many_snapshots);
    CHECK(tree.statistics().snapshots == 2);
    CHECK(audit(tree) == "");
}

TEST_CASE("a chat of a recurrent memory goes on with a single snapshot") {
    toy::Memory memory = hybrid(1);
    PrefixTree tree{memory};
    List chat;
    for (int turn = 0; turn < 5; ++turn) {
        chat = chat + counted(100 * turn, 10);
        CHECK(serve(tree, turn % 2, chat).length == 10 * turn);
        leave(tree, turn % 2);
        CHECK(tree.statistics().nodes == 1);
        CHECK(tree.statistics().tokens == 10 * (turn + 1));
    }
}

TEST_CASE("a node without a snapshot and with one child is joined to the child") {
    toy::Recurrent memory = recurrent(3);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, other_question);
    CHECK(tree.statistics().nodes == 3);
    serve(tree, 2, prompt);
    CHECK(tree.statistics().nodes == 3);
    CHECK(tree.evict()); // question
    CHECK(tree.statistics().nodes == 2);
    CHECK(tree.evict()); // other question
    CHECK(tree.statistics().nodes == 1);
    CHECK(tree.match(other_question) == PrefixMatch{20, 20});
    CHECK(audit(tree) == "");
    serve(tree, 3, third_question);
    CHECK(tree.evict()); // the prompt, which the question does not need
    CHECK(tree.statistics().nodes == 1);
    CHECK(tree.statistics().tokens == 23);
    CHECK(tree.match(third_question) == PrefixMatch{23, 23});
    CHECK(audit(tree) == "");
    CHECK(tree.evict());
    CHECK_FALSE(tree.evict());
    CHECK(tree.statistics().nodes == 0);
}

TEST_CASE("each member of a hybrid that has cells finds tokens that share a position") {
    const Refusal shared{.reason = Reason::shared_position, .sequence = Sequence{0}};
    Attention both = attention(100, 6, 100);
    PrefixTree tree{both};
    compute_image(both, 0);
    CHECK(tree.insert(Sequence{0}, counted(0, 8)).error() == shared);
    toy::Sliding window = sliding();
    PrefixTree of_window{window};
    compute_image(window, 0);
    CHECK(of_window.insert(Sequence{0}, counted(0, 8)).error() == shared);
    Hybrid<Repeat<Times<6, Attention>>, Attention> outer{6, attention(100, 6, 100)};
    PrefixTree of_outer{outer};
    compute_image(outer, 0);
    CHECK(of_outer.insert(Sequence{0}, counted(0, 8)).error() == shared);
}

TEST_CASE("a hybrid is altered where the first of its members is") {
    using Window = cellar::Cache<StandardV<float>, SlidingWindow<4>, UnrotatedShift>;
    using Whole = cellar::Cache<StandardV<float>, FullCausal, UnrotatedShift>;
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 1};
    const CacheLimits limits{.sequences = 2, .capacity = 50, .batch = 8};
    Hybrid<Repeat<Window, Whole>, Window, Whole> both{2, Window{shape, limits, SlidingWindow<4>{{.retention = 8}}},
                                                      Whole{shape, limits}};
    PrefixTree tree{both};
    REQUIRE(compute(both, 0, question));
    CHECK(both.altered_from(Sequence{0}) == to_end);
    REQUIRE(both.remove(Sequence{0}, Position{22}, Position{23}));
    CHECK(both.altered_from(Sequence{0}) == Position{22});
    CHECK(tree.insert(Sequence{0}, first(24, question)).error()
          == Refusal{.reason = Reason::altered, .sequence = Sequence{0}});
    CHECK(tree.statistics().nodes == 0);
}

TEST_CASE("the inputs of an encoder may share positions") {
    using Inputs = EncoderMemory<StandardV<float>>;
    Hybrid<Every<2, toy::Full, Inputs>, toy::Full, Inputs> memory{
        2, toy::Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 40, .batch = 40}},
        Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 40, .batch = 40}}};
    PrefixTree tree{memory};
    auto input = memory.member<Inputs>().write(Sequence{0}, Position{3}, 5).value();
    input.mark_put(0);
    input.commit();
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 20}).value();
    pass.visit(1, [](auto& one, int own) {
        if constexpr (requires { one.mark_put(own); }) one.mark_put(own);
    });
    pass.commit();
    CHECK(tree.insert(Sequence{0}, prompt));
    CHECK(tree.attach(Sequence{1}, question).value().length == 20);
    CHECK(memory.member<Inputs>().tokens(Sequence{1}) == 5);
}

TEST_CASE("a prefix has no inputs of another user that wait behind it") {
    using Inputs = EncoderMemory<StandardV<float>>;
    const CacheLimits limits{.sequences = 3, .capacity = 40, .batch = 40};
    Hybrid<Repeat<toy::Full>, toy::Full, Inputs> memory{1,
                                                        toy::Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                                                        Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    PrefixTree tree{memory};
    const auto write = [&](int s, int p) {
        auto input = memory.member<Inputs>().write(Sequence{s}, Position{p}, 5).value();
        input.mark_put(0);
        input.commit();
    };
    const auto feed = [&](int s, std::int32_t n) {
        auto pass = memory.begin(BatchBuilder{Sequence{s}, memory.next(Sequence{s}), n}).value();
        pass.visit(0, [](auto& one, int own) { one.mark_put(own); });
        pass.commit();
    };
    write(0, 3);
    feed(0, 20);
    write(0, 20);
    CHECK(tree.insert(Sequence{0}, prompt)); // appends
    CHECK(tree.attach(Sequence{1}, question).value().length == 20);
    CHECK(memory.member<Inputs>().range(Sequence{1}) == PositionRange{Position{3}, Position{3}});

    feed(1, 5);
    write(1, 25);
    CHECK(tree.insert(Sequence{1}, question));
    CHECK(tree.attach(Sequence{2}, other_question).value().length == 20);
    feed(2, 7);
    write(2, 27);
    CHECK(tree.insert(Sequence{2}, other_question)); // forks
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    CHECK(tree.attach(Sequence{0}, other_question).value().length == 27);
    CHECK(memory.member<Inputs>().range(Sequence{0}) == PositionRange{Position{3}, Position{3}});
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    CHECK(tree.insert(Sequence{2}, first(23, other_question))); // divides
    CHECK(tree.attach(Sequence{0}, question).value().length == 25);
    CHECK(memory.member<Inputs>().range(Sequence{0}) == PositionRange{Position{3}, Position{3}});
}

} // namespace test_kinds
