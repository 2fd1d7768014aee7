// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults of other memories with several kinds of layers. Each test shows that cellar does not have the fault; comments
// describe the fault.
#include "../cache/numbers.hpp"
#include "../hybrid/toy.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace test_hybrids {

using namespace cellar;
using namespace toy;

namespace {

/// Members with keys that can be rotated.
using Near = numbers::Cache<SlidingWindow<4>>;
using Far = numbers::Cache<>;
using Caches = Hybrid<Repeat<Near, Far>, Near, Far>;
using Turning = Hybrid<Repeat<Near, Far, Recurrent>, Near, Far, Recurrent>;

Near near() {
    return Near{numbers::small, {.sequences = 2, .capacity = 100, .batch = 8}, SlidingWindow<4>{{.retention = 9}}};
}
Far far() {
    return Far{numbers::small, {.sequences = 2, .capacity = 20, .batch = 8}};
}

template <class M>
bool feed_all(M& memory, const Text& tokens) {
    numbers::Numbers rows;
    for (const toy::Token& t : tokens) rows.push_back({t.sequence, t.position, static_cast<float>(t.word)});
    auto pass = memory.begin(batch_of(tokens));
    if (!pass) return false;
    numbers::put(pass->template of<Near>(), numbers::small, rows);
    numbers::put(pass->template of<Far>(), numbers::small, rows);
    if (pass->layers() == 3) pass->visit(2, Work{tokens});
    pass->commit();
    return true;
}

std::string picture(Turning& memory) {
    return member_portrait(memory.member<0>()) + member_portrait(memory.member<1>())
           + member_portrait(memory.member<2>());
}

int current_state(const Recurrent& states, int s) {
    return static_cast<int>(states.view<Hash>(0, states.state(Sequence{s}))(0));
}

using numbers::held;
using numbers::Held;

} // namespace

TEST_CASE("a batch that the states refuse takes no cells") {
    // The fault: the caches came first, and kept the cells that they had given.
    toy::Memory memory = toy::memory({.unequal = Unequal::refuse});
    REQUIRE(feed(memory, text(0, 0, 3)));
    const std::string before = portrait(memory);
    const auto refused = [&](const Text& tokens) {
        const auto begun = memory.begin(batch_of(tokens));
        REQUIRE_FALSE(begun);
        return begun.error();
    };
    CHECK(refused(text(1, 0, 2) + text(0, 4, 2)) == Refusal{Reason::not_next, 0, Sequence{0}, Position{3}});
    CHECK(portrait(memory) == before);
    CHECK(refused(text(1, 0, 2) + text(0, 3, 1)) == Refusal{Reason::unequal_batch, 2});
    CHECK(portrait(memory) == before);
    CHECK(feed(memory, text(1, 0, 1) + text(0, 3, 1)));
    // A refused batch leaves no trace in the next pass, nor in a reserved one.
    CHECK(refused(text(2, 1, 1)) == Refusal{Reason::not_next, 0, Sequence{2}, Position{0}});
    memory.reserve(8).drop();
    CHECK(feed(memory, text(2, 0, 1)));
}

TEST_CASE("a removal that the states refuse changes no cache") {
    // The fault: the states agreed and did nothing, or refused after the caches had changed.
    Turning memory{3, near(), far(), Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .rollback = 2}}};
    REQUIRE(feed_all(memory, text(0, 0, 6)));
    const std::string before = picture(memory);
    CHECK(memory.remove(Sequence{0}, Position{1}, Position{2}).error() == Refusal{Reason::cannot_cut, 2});
    CHECK(memory.remove(Sequence{0}, Position{2}, to_end).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{2}).error() == Refusal{Reason::cannot_rewind, 2});
    CHECK(picture(memory) == before);
    REQUIRE(memory.remove(Sequence{0}, Position{4}, to_end));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(memory.member<1>().tokens(Sequence{0}) == 4);
    CHECK(memory.member<1>().tokens(Sequence{1}) == 4);
    CHECK(memory.member<2>().next(Sequence{1}) == Position{4});
}

TEST_CASE("the first tokens alone cannot be removed, from states or from caches") {
    // The fault: a range from the beginning was taken for the whole sequence.
    Turning memory{3, near(), far(), Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8}}};
    REQUIRE(feed_all(memory, text(0, 0, 6)));
    const std::string before = picture(memory);
    for (int end = 1; end < 6; ++end)
        CHECK(memory.remove(Sequence{0}, Position{0}, Position{end}).error() == Refusal{Reason::cannot_cut, 2});
    CHECK(picture(memory) == before);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, Position{6}));
    CHECK(memory.member<1>().tokens(Sequence{0}) == 0);
    CHECK(memory.member<2>().kept(Sequence{0}).empty());
}

TEST_CASE("several caches shift together, and states are fed again from a checkpoint") {
    Caches caches{2, near(), far()};
    REQUIRE(feed_all(caches, text(0, 0, 8, 10)));
    REQUIRE(caches.remove(Sequence{0}, Position{1}, Position{4}));
    const Held moved{{10, 10}, {14, 11}, {15, 12}, {16, 13}, {17, 14}};
    CHECK(held(caches.member<Near>(), 0) == moved);
    CHECK(held(caches.member<Far>(), 0) == moved);

    // A state cannot forget tokens. It goes back to a checkpoint and is fed from there.
    Turning memory{3, near(), far(),
                   Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .checkpoints = 6, .checkpoint_interval = 2}}};
    REQUIRE(feed_all(memory, text(0, 0, 8, 10)));
    REQUIRE(memory.remove(Sequence{0}, memory.resumable_prefix(Sequence{0}, Position{3}), to_end));
    REQUIRE(feed_all(memory, text(0, 2, 3, 15)));
    CHECK(current_state(memory.member<Recurrent>(), 0) == folded({10, 11, 15, 16, 17}));
    CHECK(held(memory.member<Far>(), 0) == Held{{10, 10}, {11, 11}, {15, 15}, {16, 16}, {17, 17}});
}

// A member whose window has forgotten everything below the cut began at 0 again, and no token could follow.
TEST_CASE("members agree on the next token wherever a sequence is cut") {
    using Local = numbers::Cache<ChunkedAttention<4>>;
    Hybrid<Repeat<Local, Far>, Local, Far> memory{
        2, Local{numbers::small, {.sequences = 2, .capacity = 40, .batch = 20}}, far()};
    const auto feed = [&](int s, int first, int n) -> std::optional<Reason> {
        auto pass = memory.begin(BatchBuilder{Sequence{s}, Position{first}, n});
        if (!pass) return pass.error().reason;
        const std::vector<float> keys(static_cast<std::size_t>(2 * n), 1.0F);
        const std::vector<float> values(static_cast<std::size_t>(n), 1.0F);
        for (int layer = 0; layer < 2; ++layer) pass->visit(layer, [&](auto& own, int i) { own.put(i, keys, values); });
        pass->commit();
        return std::nullopt;
    };
    for (int i = 0; i < 10; i += 5) REQUIRE(feed(0, i, 5) == std::nullopt);
    REQUIRE(memory.resumable_prefix(Sequence{0}, Position{6}) == Position{4});
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(memory.next(Sequence{1}) == Position{4});
    CHECK(feed(1, 4, 2) == std::nullopt);
    REQUIRE(memory.remove(Sequence{0}, Position{4}, to_end));
    CHECK(feed(0, 4, 1) == std::nullopt);
    CHECK(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{3}).error() == Reason::cannot_resume);
    CHECK(memory.next(Sequence{1}) == Position{6}); // as it was
}

TEST_CASE("a hybrid goes back to the checkpoints of its states") {
    // The fault: the wrapper forwarded only operations that all members had.
    toy::Memory memory =
        toy::memory({.sliding_retention = 20, .rollback = 0, .checkpoints = 6, .checkpoint_interval = 4});
    REQUIRE(feed(memory, text(0, 0, 7)));
    REQUIRE(memory.member<Recurrent>().checkpoint(Sequence{0}));
    REQUIRE(memory.member<Recurrent>().schedule(Sequence{0}, Position{9}));
    REQUIRE(feed(memory, text(0, 7, 4, 8)));
    for (const int p : {4, 7, 8, 9, 11}) CHECK(memory.can_resume(Sequence{0}, Position{p}));
    for (const int p : {5, 6, 10}) CHECK_FALSE(memory.can_resume(Sequence{0}, Position{p}));
    std::vector<int> words{1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (const int p : {9, 7, 4}) {
        words.resize(static_cast<std::size_t>(p));
        REQUIRE(memory.remove(Sequence{0}, Position{p}, to_end));
        CHECK(current_state(memory.member<Recurrent>(), 0) == folded(words));
        CHECK(memory.member<Full>().tokens(Sequence{0}) == p);
    }
}

} // namespace test_hybrids
