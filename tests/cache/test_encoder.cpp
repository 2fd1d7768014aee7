// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "memory/internals.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_encoder {

using namespace cellar;

namespace {

using Inputs = EncoderMemory<>;
static_assert(Memory<Inputs>);

constexpr int layers = 2;
const CacheShape shape{.layers = layers, .kv_heads = 1, .head_dim = 1};

/// One input whose tokens are x, x + 1, ...
bool put_input(Inputs& memory, int s, int p, int tokens, float x) {
    auto pass = memory.write(Sequence{s}, Position{p}, tokens);
    if (!pass) return false;
    std::vector<float> rows;
    for (int i = 0; i < tokens; ++i) rows.push_back(x + static_cast<float>(i));
    for (int layer = 0; layer < layers; ++layer) pass->put(layer, rows, rows);
    pass->commit();
    return true;
}

template <class Pass>
std::vector<float> seen(Pass& pass, int query) {
    std::vector<float> found;
    for (int layer = 0; layer < layers; ++layer) {
        const auto [keys, values, mask] = pass.get(layer);
        for (int c = 0; c < pass.history().count; ++c) {
            if (mask(query, c) != 0) continue;
            CHECK(keys(c, 0, 0) == values(c, 0, 0));
            if (layer == 0) found.push_back(keys(c, 0, 0));
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

/// The values that a token of s at p sees.
std::vector<float> sees(Inputs& memory, int s, int p) {
    auto pass = memory.begin(BatchBuilder{Sequence{s}, Position{p}});
    REQUIRE(pass);
    return seen(*pass, 0);
}

using Values = std::vector<float>;

} // namespace

TEST_CASE("encoder: a token sees the inputs of its sequence from their position on") {
    Inputs memory{shape, {.sequences = 2, .capacity = 8, .batch = 4}};
    REQUIRE(put_input(memory, 0, 3, 2, 10));
    REQUIRE(put_input(memory, 1, 0, 1, 50));
    REQUIRE(put_input(memory, 0, 5, 3, 20));
    CHECK(sees(memory, 0, 2) == Values{});
    CHECK(sees(memory, 0, 3) == Values{10, 11});
    CHECK(sees(memory, 0, 4) == Values{10, 11});
    CHECK(sees(memory, 0, 1000) == Values{10, 11, 20, 21, 22});
    CHECK(sees(memory, 1, 0) == Values{50});
    CHECK(memory.tokens(Sequence{0}) == 5);
    CHECK(memory.next(Sequence{0}) == Position{0}); // inputs are not tokens of the sequence
}

TEST_CASE("encoder: each token of a decoder's batch reads its sequence's inputs, and takes no cell") {
    Inputs memory{shape, {.sequences = 3, .capacity = 4, .batch = 4}};
    REQUIRE(put_input(memory, 0, 0, 4, 1));
    REQUIRE(put_input(memory, 1, 7, 4, 5));
    REQUIRE(put_input(memory, 2, 2, 4, 9)); // all cells are taken
    const std::vector<Position> positions{Position{9}, Position{1}, Position{6}, Position{7}};
    const std::vector<Sequence> sequences{Sequence{2}, Sequence{0}, Sequence{1}, Sequence{1}};
    const std::vector<int> none;
    const std::vector<int> in_groups{0, 1, 2, 2};
    for (const std::vector<int>& groups : {none, in_groups}) {
        auto pass = memory.begin({positions, sequences, groups});
        REQUIRE(pass);
        CHECK(pass->tokens() == 4);
        CHECK(seen(*pass, 0) == Values{9, 10, 11, 12});
        CHECK(seen(*pass, 1) == Values{1, 2, 3, 4});
        CHECK(seen(*pass, 2) == Values{}); // even if its group reaches the input
        CHECK(seen(*pass, 3) == Values{5, 6, 7, 8});
        const auto mask = pass->mask<bool>();
        CHECK(mask(1, 0));
        CHECK_FALSE(mask(2, 0));
        pass->commit();
        CHECK(memory.statistics().free == 0);
        CHECK(memory.tokens(Sequence{1}) == 4);
    }
}

TEST_CASE("encoder: one pass writes several inputs, even at earlier positions") {
    Inputs memory{shape, {.sequences = 2, .capacity = 8, .batch = 6}};
    REQUIRE(put_input(memory, 0, 9, 2, 90));
    const EncoderInput inputs[] = {
        {Sequence{1}, Position{0}, 2}, {Sequence{0}, Position{4}, 3}, {Sequence{1}, Position{0}, 1}};
    auto pass = memory.write(inputs);
    REQUIRE(pass);
    const Values rows{1, 2, 40, 41, 42, 3};
    for (int layer = 0; layer < layers; ++layer) pass->put(layer, rows, rows);
    pass->commit();
    CHECK(sees(memory, 0, 8) == Values{40, 41, 42});
    CHECK(sees(memory, 0, 9) == Values{40, 41, 42, 90, 91});
    CHECK(sees(memory, 1, 0) == Values{1, 2, 3}); // inputs at one position add up
    CHECK(audit(memory).empty());
}

TEST_CASE("encoder: sequences without inputs have an empty history") {
    Inputs memory{shape, {.sequences = 2, .capacity = 4, .batch = 4}};
    REQUIRE(put_input(memory, 1, 5, 2, 1));
    const std::vector<Position> positions{Position{0}, Position{4}};
    const std::vector<Sequence> sequences{Sequence{0}, Sequence{1}};
    auto pass = memory.begin({positions, sequences});
    REQUIRE(pass);
    CHECK(pass->history().count == 0);
    CHECK(pass->keys(1).extent(0) == 0);
    CHECK(pass->mask().size() == 0);
}

TEST_CASE("encoder: a write that is dropped or refused changes nothing") {
    Inputs memory{shape, {.sequences = 2, .capacity = 4, .batch = 6}};
    REQUIRE(put_input(memory, 0, 0, 4, 1));
    { auto pass = memory.write(Sequence{1}, Position{2}, 3); }
    CHECK(memory.statistics().free == 4);
    CHECK(memory.write(Sequence{1}, Position{0}, 5).error() == Reason::full);
    CHECK(memory.write(Sequence{1}, Position{0}, 7).error() == Reason::batch_too_long);
    const std::vector<Position> positions(7);
    const std::vector<Sequence> sequences(7);
    CHECK(memory.begin({positions, sequences}).error() == Reason::batch_too_long);
    CHECK(memory.statistics().free == 4);
    CHECK(sees(memory, 0, 0) == Values{1, 2, 3, 4});
    CHECK(sees(memory, 1, 9) == Values{});
    CHECK(violation_of([&] { (void)memory.write(Sequence{0}, Position{0}, -1).has_value(); })
          == "write: an input of -1 tokens, expected 0 or more");
    CHECK(violation_of([&] { (void)memory.write(Sequence{2}, Position{0}, 1).has_value(); })
          == "write: an input of sequence 2, expected 0 to 1");
    CHECK(violation_of([&] { (void)memory.write(Sequence{-1}, Position{0}, 1).has_value(); })
          == "write: an input of sequence -1, expected 0 to 1");
    CHECK(violation_of([&] { (void)memory.write(Sequence{0}, Position{-1}, 1).has_value(); })
          == "write: an input at position -1, expected 0 or more, and less than to_end");
    CHECK(violation_of([&] { (void)memory.write(Sequence{0}, to_end, 1).has_value(); })
          == "write: an input at position 2147483647, expected 0 or more, and less than to_end");
    CHECK(memory.statistics().free == 4);
    CHECK(sees(memory, 0, 0) == Values{1, 2, 3, 4});
}

TEST_CASE("encoder: a copied prefix shares the inputs below its length") {
    Inputs memory{shape, {.sequences = 2, .capacity = 8, .batch = 4}};
    REQUIRE(put_input(memory, 0, 0, 2, 10));
    REQUIRE(put_input(memory, 0, 6, 2, 20));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{6}));
    CHECK(sees(memory, 1, 9) == Values{10, 11});
    CHECK(memory.statistics().shared == 2);
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{7}));
    CHECK(sees(memory, 1, 9) == Values{10, 11, 20, 21});
}

TEST_CASE("encoder: a removal drops inputs, and later ones move down without copies") {
    Inputs memory{shape, {.sequences = 2, .capacity = 4, .batch = 4}};
    REQUIRE(put_input(memory, 0, 1, 1, 10));
    REQUIRE(put_input(memory, 0, 4, 2, 20));
    REQUIRE(put_input(memory, 0, 8, 3, 30));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{100}));
    REQUIRE(memory.remove(Sequence{0}, Position{3}, Position{6}));
    CHECK(sees(memory, 0, 4) == Values{10});
    CHECK(sees(memory, 0, 5) == Values{10, 30, 31, 32});
    CHECK(sees(memory, 1, 7) == Values{10, 20, 21}); // the other sequence keeps its inputs
    CHECK(sees(memory, 1, 8) == Values{10, 20, 21, 30, 31, 32});
    CHECK(memory.statistics().shared == 4);
    CHECK(audit(memory).empty());
    REQUIRE(memory.remove(Sequence{0}, Position{5}, to_end));
    CHECK(sees(memory, 0, 100) == Values{10});
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    CHECK(memory.tokens(Sequence{0}) == 0);
}

TEST_CASE("encoder: a sequence can be resumed anywhere") {
    Inputs memory{shape, {.capacity = 4, .batch = 4}};
    CHECK(memory.can_resume(Sequence{0}, Position{70}));
    CHECK(memory.resumable_prefix(Sequence{0}, Position{70}) == Position{70});
    CHECK(violation_of([&] { (void)memory.can_resume(Sequence{0}, Position{-1}); })
          == "can_resume: position -1, expected 0 or more");
    CHECK(violation_of([&] { (void)memory.can_resume(Sequence{1}, Position{1}); }) == "sequence 1, expected 0 to 0");
}

TEST_CASE("encoder: reserve, defragment and bytes work as in a cache") {
    Inputs memory{shape, {.sequences = 2, .capacity = 4, .batch = 4}};
    CHECK(memory.bytes() == std::int64_t{layers} * 8 * 2 * 4);
    {
        auto pass = memory.reserve(3);
        CHECK(pass.history().count == 8);
        CHECK(pass.mask<bool>()(2, 7));
        CHECK(pass.visit(1, [](auto& p, int layer) { return p.keys(layer).extent(0); }) == 8);
        CHECK(violation_of([&] { (void)memory.reserve(1).tokens(); })
              == "reserve: a pass is open, expected it to be committed or dropped first");
        pass.commit();
    }
    for (int i = 0; i < 2; ++i) // a reserved pass that is not committed ends, too
        CHECK(violation_of([&] { (void)memory.reserve(1).tokens(); }) == "none");
    REQUIRE(put_input(memory, 0, 0, 3, 1));
    REQUIRE(put_input(memory, 1, 2, 3, 5));
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    memory.defragment();
    CHECK(cellar_test::table_of(memory).free().contains(3));
    CHECK(sees(memory, 1, 2) == Values{5, 6, 7});
    memory.fence();
}

TEST_CASE("encoder: while a pass is open, every other operation is a violation, and the pass can be committed") {
    Inputs memory{shape, {.sequences = 2, .capacity = 8, .batch = 4}};
    REQUIRE(put_input(memory, 0, 1, 2, 10));
    const auto expect_all_refused = [&] {
        const std::string open = ": a pass is open, expected it to be committed or dropped first";
        CHECK(violation_of([&] { (void)memory.write(Sequence{0}, Position{5}, 1); }) == "write" + open);
        CHECK(violation_of([&] { (void)memory.begin(BatchBuilder{Sequence{0}, Position{9}}); }) == "begin" + open);
        CHECK(violation_of([&] { (void)memory.copy_prefix(Sequence{0}, Sequence{1}, Position{2}); })
              == "copy_prefix" + open);
        CHECK(violation_of([&] { (void)memory.remove(Sequence{0}, Position{0}, to_end); }) == "remove" + open);
        CHECK(violation_of([&] { (void)memory.snapshot(Sequence{0}); }) == "snapshot" + open);
        CHECK(violation_of([&] { (void)memory.rewind(Sequence{0}, Position{0}); }) == "rewind" + open);
        CHECK(violation_of([&] { memory.reserve_lists(4); }) == "reserve_lists" + open);
        CHECK(violation_of([&] { memory.defragment(); }) == "defragment" + open);
    };
    {
        auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{2}}).value();
        expect_all_refused();
        CHECK(seen(pass, 0) == Values{10, 11});
        pass.commit();
    }
    {
        auto pass = memory.write(Sequence{0}, Position{3}, 2).value();
        const Values rows{20, 21};
        for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, rows);
        expect_all_refused();
        pass.commit();
    }
    CHECK(sees(memory, 0, 3) == Values{10, 11, 20, 21});
    CHECK(audit(memory).empty());
}

TEST_CASE("encoder: a hybrid can have it outside of its pattern") {
    using Text = Cache<>;
    using Model = Hybrid<Repeat<Text>, Text, Inputs>;
    Model model{1, Text{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 8, .batch = 4}},
                Inputs{shape, {.capacity = 6, .batch = 4}}};
    static_assert(Memory<Model>);
    REQUIRE(put_input(model.member<Inputs>(), 0, 1, 2, 10));
    const std::vector<Position> positions{Position{0}, Position{1}, Position{2}};
    const std::vector<Sequence> sequences(3);
    auto pass = model.begin({positions, sequences});
    REQUIRE(pass);
    const Values rows{1, 2, 3};
    pass->visit(0, [&](auto& own, int i) { own.put(i, rows, rows); });
    auto& inputs = pass->of<Inputs>();
    CHECK(seen(inputs, 0) == Values{});
    CHECK(seen(inputs, 1) == Values{10, 11});
    pass->commit();
    CHECK(model.remove(Sequence{0}, Position{0}, Position{1}).error() == Reason::cannot_shift);
    REQUIRE(model.remove(Sequence{0}, Position{1}, to_end));
    CHECK(model.member<Inputs>().tokens(Sequence{0}) == 0);
    CHECK(model.member<Text>().tokens(Sequence{0}) == 1);
    CHECK(model.can_resume(Sequence{0}, Position{1}));
}

} // namespace test_encoder
