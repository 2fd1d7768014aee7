// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../cache/numbers.hpp"
#include "../violations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_operations {

using namespace cellar;
using namespace toy;

namespace {

std::vector<int> words(int count) {
    std::vector<int> list;
    for (int i = 1; i <= count; ++i) list.push_back(i);
    return list;
}

/// The state of s after the tokens below p, or -1.
int state_at(const toy::Memory& memory, int s, int p) {
    for (const KeptState& state : memory.member<Recurrent>().kept(Sequence{s}))
        if (state.next == Position{p})
            return static_cast<int>(memory.member<Recurrent>().view<Hash>(
                0, memory.member<Recurrent>().state(Sequence{s}, Position{p}))(0));
    return -1;
}

} // namespace

TEST_CASE("hybrid: visit finds the member of each layer, and the layer's index there") {
    toy::Memory memory = toy::memory();
    auto pass = memory.begin(batch_of(text(0, 0, 1)));
    REQUIRE(pass);
    CHECK(pass->tokens() == 1);
    CHECK(pass->layers() == layers);
    std::string seen;
    for (int layer = 0; layer < layers; ++layer)
        seen += pass->visit(layer, []<class P>(P& p, int i) {
            const char kind = std::is_same_v<P, NoMemory> ? '-' : requires {
                p.micro_batches();
            }
            ? 'R' : requires {
                p.template mask<bool>();
            }
            ? 'c' : '?';
            return kind + std::to_string(i) + ' ';
        });
    CHECK(seen == "c0 c1 c0 -0 R0 c2 c3 c1 ");
}

TEST_CASE("hybrid: a committed pass is in all members, a dropped one in none") {
    toy::Memory memory = toy::memory();
    REQUIRE(feed(memory, text(0, 0, 3)));
    CHECK(memory.member<Sliding>().tokens(Sequence{0}) == 3);
    CHECK(memory.member<Full>().tokens(Sequence{0}) == 3);
    CHECK(state_at(memory, 0, 3) == folded(words(3)));

    const std::string before = portrait(memory);
    const Text more = text(0, 3, 2, 4);
    {
        auto pass = memory.begin(batch_of(more));
        REQUIRE(pass);
        fill(*pass, more);
        pass->drop();
        CHECK(portrait(memory) == before);
    }
    {
        auto pass = memory.begin(batch_of(more));
        REQUIRE(pass);
        fill(*pass, more, 4);
    }
    CHECK(portrait(memory) == before);
    REQUIRE(feed(memory, more));
    CHECK(memory.member<Full>().tokens(Sequence{0}) == 5);
    CHECK(state_at(memory, 0, 5) == folded(words(5)));
}

TEST_CASE("hybrid: copy_prefix shares in all members, and both sequences continue") {
    toy::Memory memory = toy::memory();
    REQUIRE(feed(memory, text(0, 0, 4)));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(memory.member<Full>().statistics().shared == 4);
    REQUIRE(feed(memory, text(0, 4, 1, 5) + text(1, 4, 1, 90)));
    CHECK(state_at(memory, 0, 5) == folded({1, 2, 3, 4, 5}));
    CHECK(state_at(memory, 1, 5) == folded({1, 2, 3, 4, 90}));
    CHECK(memory.member<Full>().tokens(Sequence{1}) == 5);
}

TEST_CASE("hybrid: a sequence goes back to positions where all members can resume") {
    toy::Memory memory = toy::memory({.sliding_retention = 6, .rollback = 4});
    REQUIRE(feed(memory, text(0, 0, 8)));
    REQUIRE(feed(memory, text(0, 8, 2, 9))); // the sliding member keeps 4 to 9, the states are at 6 to 10
    CHECK(memory.can_resume(Sequence{0}, Position{10}));
    CHECK(memory.can_resume(Sequence{0}, Position{7})); // a token at 7 sees from 4 on
    CHECK_FALSE(memory.can_resume(Sequence{0}, Position{6}));
    CHECK(memory.member<Recurrent>().can_resume(Sequence{0}, Position{6}));
    CHECK_FALSE(memory.can_resume(Sequence{0}, Position{12}));
    CHECK(memory.resumable_prefix(Sequence{0}, Position{12}) == Position{10});
    CHECK(memory.resumable_prefix(Sequence{0}, Position{9}) == Position{9});
    CHECK(memory.resumable_prefix(Sequence{0}, Position{6}) == Position{0});
    CHECK(memory.resumable_prefix(Sequence{0}, Position{1000}) == Position{10});

    REQUIRE(memory.remove(Sequence{0}, Position{8}, to_end));
    CHECK(memory.member<Full>().tokens(Sequence{0}) == 8);
    CHECK(memory.member<Recurrent>().next(Sequence{0}) == Position{8});
    REQUIRE(feed(memory, text(0, 8, 1, 50)));
    CHECK(state_at(memory, 0, 9) == folded({1, 2, 3, 4, 5, 6, 7, 8, 50}));
}

TEST_CASE("hybrid: resumable_prefix asks the members until they agree") {
    using Two = Hybrid<Repeat<Sliding, Recurrent>, Sliding, Recurrent>;
    Two memory{2, Sliding{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 100, .batch = 6}},
               Recurrent{{1, {{1}}}, {.batch = 6, .checkpoints = 6, .checkpoint_interval = 4}}};
    REQUIRE(feed(memory, text(0, 0, 6), 2));
    REQUIRE(feed(memory, text(0, 6, 1, 7), 2)); // tokens 3 to 6, and the states at 4 and 7
    CHECK(memory.member<0>().resumable_prefix(Sequence{0}, Position{6}) == Position{6}); // a token at 6 sees 3 to 5
    CHECK(memory.member<1>().resumable_prefix(Sequence{0}, Position{6})
          == Position{4}); // a token at 4 would see 1 to 3
    CHECK(memory.resumable_prefix(Sequence{0}, Position{6}) == Position{0});
    CHECK(memory.resumable_prefix(Sequence{0}, Position{7}) == Position{7});
}

TEST_CASE("hybrid: next is the position after the tokens, wherever a member for inputs stands") {
    using Inputs = EncoderMemory<>;
    const CacheLimits limits{.capacity = 4, .batch = 4};
    Hybrid<Every<2, Full, Inputs>, Full, Inputs> last{2, Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                                                      Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    Hybrid<Every<2, Full, Inputs>, Inputs, Full> first{2, Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                                                       Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    const auto next_after_three_tokens = [](auto& memory) {
        auto pass = memory.begin(batch_of(text(0, 0, 3)));
        REQUIRE(pass);
        const std::vector<float> rows(3, 1.0F);
        pass->template of<Full>().put(0, rows, rows);
        pass->commit();
        return memory.next(Sequence{0});
    };
    CHECK(next_after_three_tokens(last) == Position{3});
    CHECK(next_after_three_tokens(first) == Position{3});
}

TEST_CASE("hybrid: fence, bytes, reserve and defragment reach all members") {
    toy::Memory memory = toy::memory();
    memory.fence();
    CHECK(memory.bytes() == memory.member<0>().bytes() + memory.member<1>().bytes() + memory.member<2>().bytes());
    {
        auto pass = memory.reserve(8);
        CHECK(pass.tokens() == 8);
        CHECK(pass.of<Full>().history().count == memory.member<Full>().cells());
        CHECK(pass.of<Recurrent>().micro_batches().size() > 0);
        pass.commit();
    }
    REQUIRE(feed(memory, text(0, 0, 2) + text(1, 0, 2)));
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    memory.defragment();
    CHECK(contents(memory.member<Full>(), 1) == " 0:1@0 1:2@1");
    CHECK(contents(memory.member<Sliding>(), 1) == " 0:1@0 1:2@1");
}

TEST_CASE("hybrid: it can be moved while a pass is open") {
    toy::Memory memory = toy::memory();
    const Text tokens = text(0, 0, 2);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    toy::Memory moved = std::move(memory);
    auto moved_pass = std::move(*pass);
    fill(moved_pass, tokens);
    moved_pass.commit();
    CHECK(moved.member<Full>().tokens(Sequence{0}) == 2);
    CHECK(state_at(moved, 0, 2) == folded(words(2)));
}

TEST_CASE("hybrid: committing the pass of one member is a violation, and the pass goes on") {
    toy::Memory memory = toy::memory();
    const Text tokens = text(0, 0, 2);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    fill(*pass, tokens);
    CHECK(violation_of([&] { pass->of<Sliding>().commit(); })
          == "commit: the pass of member 0 of a hybrid, expected that of the whole");
    CHECK(violation_of([&] { pass->of<Full>().commit(); })
          == "commit: the pass of member 1 of a hybrid, expected that of the whole");
    CHECK(violation_of([&] { pass->of<Recurrent>().commit(); })
          == "commit: the pass of member 2 of a hybrid, expected that of the whole");
    pass->commit();
    // What is named here belongs to that pass alone.
    CHECK(violation_of([&] { memory.member<Full>().reserve(1).commit(); }) == "none");
    {
        auto dropped = memory.begin(batch_of(text(0, 2, 1)));
        REQUIRE(dropped);
        fill(*dropped, text(0, 2, 1));
        dropped->of<Full>().drop();
        CHECK(violation_of([&] { dropped->commit(); })
              == "the pass is over, expected one that was not committed, dropped or moved from");
    }
    CHECK(memory.next(Sequence{0}) == Position{2});
    CHECK(memory.member<Full>().tokens(Sequence{0}) == 2);
    CHECK(state_at(memory, 0, 2) == folded(words(2)));
}

TEST_CASE("hybrid: committing the pass of an encoder that is a member is a violation") {
    using Inputs = EncoderMemory<StandardV<float>>;
    Hybrid<Every<2, Full, Inputs>, Full, Inputs> memory{
        2, Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 4}},
        Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 4}}};
    auto pass = memory.begin(batch_of(text(0, 0, 1)));
    REQUIRE(pass);
    CHECK(violation_of([&] { pass->of<Inputs>().commit(); })
          == "commit: the pass of member 1 of a hybrid, expected that of the whole");
}

TEST_CASE("hybrid: committing the pass of a hybrid that is a member is a violation") {
    struct Other : Full {
        using Full::Full;
    };
    using Inner = Hybrid<Repeat<Full>, Full>;
    const CacheLimits limits{.capacity = 8, .batch = 4};
    Hybrid<Repeat<Inner, Other>, Inner, Other> memory{
        2, Inner{1, Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}},
        Other{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    auto pass = memory.begin(batch_of(text(0, 0, 2)));
    REQUIRE(pass);
    const auto put = [](auto& own, int layer) { own.put(layer, std::vector<float>(2), std::vector<float>(2)); };
    pass->of<Inner>().visit(0, put);
    pass->of<Other>().put(0, std::vector<float>(2), std::vector<float>(2));
    CHECK(violation_of([&] { pass->of<Inner>().commit(); })
          == "commit: the pass of member 0 of a hybrid, expected that of the whole");
    pass->commit();
    CHECK(memory.next(Sequence{0}) == Position{2});
    CHECK(memory.member<Inner>().next(Sequence{0}) == Position{2});
    CHECK(violation_of([&] { memory.member<Inner>().reserve(1).commit(); }) == "none");
}

TEST_CASE("hybrid: members that have different tokens are a violation") {
    const auto filled = [](auto member) {
        REQUIRE(feed(member, text(1, 0, 1), member.layers()));
        return member;
    };
    const auto sliding = [] {
        return Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 9}};
    };
    const auto full = [] { return Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 9}}; };
    using Two = Hybrid<Repeat<Times<2, Sliding>, Full>, Sliding, Full>;
    CHECK(violation_of([&] {
              Two{5, filled(sliding()), full()};
          })
          == "hybrid: member 1 cannot resume sequence 1 at position 1, where another member does, expected members "
             "with the same tokens");
    CHECK(violation_of([&] {
              Two{5, sliding(), filled(full())};
          })
          == "hybrid: member 0 cannot resume sequence 1 at position 1, where another member does, expected members "
             "with the same tokens");
    Two both{5, filled(sliding()), filled(full())};
    CHECK(both.next(Sequence{1}) == Position{1});
    CHECK(both.can_resume(Sequence{1}, Position{1}));
    // Where they agree, what they lack does not matter.
    const auto gap = [] {
        Full cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 9, .positions = Positions::any}};
        REQUIRE(feed(cache, text(0, 5, 1), 1));
        return cache;
    };
    REQUIRE_FALSE(gap().can_resume(Sequence{0}, Position{6}));
    CHECK(violation_of([&] { Hybrid<Repeat<Full>, Full>{1, gap()}; }) == "none");
}

TEST_CASE("hybrid: a member outside of the pattern takes part in everything, and its type names it") {
    struct Extra : Full {
        using Full::Full;
    };
    Hybrid<Every<2, Full, NoMemory>, Full, Extra> memory{
        4, Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.capacity = 4}},
        Extra{{.layers = 3, .kv_heads = 1, .head_dim = 1}, {.capacity = 4}}};
    auto pass = memory.begin(batch_of(text(0, 0, 1)));
    REQUIRE(pass);
    const std::vector<float> row{3};
    for (const int layer : {1, 3})
        pass->visit(layer, [&](auto& own, int i) {
            if constexpr (requires { own.put(i, row, row); }) own.put(i, row, row);
        });
    for (const int layer : {0, 1}) pass->of<Extra>().put(layer, row, row);
    CHECK(violation_of([&] { pass->commit(); })
          == "commit: layer 2 of member 1 was not put, expected a put of every layer");
    pass->of<Extra>().put(2, row, row);
    pass->commit();
    CHECK(memory.member<Extra>().tokens(Sequence{0}) == 1);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    CHECK(memory.member<1>().tokens(Sequence{0}) == 0);
}

TEST_CASE("hybrid: members that do not fit the pattern are violations") {
    const auto sliding = [](int n) {
        return Sliding{{.layers = n, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 9}};
    };
    const auto full = [](int n, int sequences = 2) {
        return Full{{.layers = n, .kv_heads = 1, .head_dim = 1}, {.sequences = sequences, .capacity = 9}};
    };
    using Two = Hybrid<Repeat<Times<2, Sliding>, Full>, Sliding, Full>;
    CHECK(violation_of([&] { Two{5, sliding(4), full(1)}; }) == "none");
    CHECK(violation_of([&] {
              Two{5, sliding(3), full(1)};
          })
          == "hybrid: member 0 has 3 layers, expected 4 of 5 in its pattern");
    CHECK(violation_of([&] {
              Two{6, sliding(4), full(1)};
          })
          == "hybrid: member 1 has 1 layers, expected 2 of 6 in its pattern");
    CHECK(violation_of([&] {
              Two{5, sliding(4), full(2)};
          })
          == "hybrid: member 1 has 2 layers, expected 1 of 5 in its pattern");
    CHECK(violation_of([&] { Two{0, sliding(4), full(1)}; }) == "hybrid: 0 layers, expected at least 1");
    CHECK(violation_of([&] {
              Two{3, sliding(2), full(1, 3)};
          })
          == "hybrid: member 1 has 3 sequences, expected 2 as the first one has");
    using List = Hybrid<LayerList<Full, Times<2, Sliding>>, Sliding, Full>;
    CHECK(violation_of([&] { List{3, sliding(2), full(1)}; }) == "none");
    CHECK(violation_of([&] { List{6, sliding(4), full(2)}; }) == "hybrid: 6 layers, expected the 3 of the pattern");
}

TEST_CASE("hybrid: wrong layers, and operations while a pass is open, are violations") {
    toy::Memory memory = toy::memory();
    auto pass = memory.begin(batch_of(text(0, 0, 1)));
    REQUIRE(pass);
    CHECK(violation_of([&] { pass->visit(8, [](auto&, int) {}); }) == "visit: layer 8, expected 0 to 7");
    CHECK(violation_of([&] { pass->visit(-1, [](auto&, int) {}); }) == "visit: layer -1, expected 0 to 7");
    CHECK(violation_of([&] { (void)memory.begin(batch_of(text(0, 0, 1))).has_value(); })
          == "begin: a pass is open, expected it to be committed or dropped first");
    CHECK(violation_of([&] { (void)memory.copy_prefix(Sequence{0}, Sequence{1}, Position{1}).has_value(); })
          == "copy_prefix: a pass is open, expected it to be committed or dropped first");
}

TEST_CASE("a refusal of a hybrid names the member") {
    const Refusal refused{Reason::full, 1};
    CHECK(refused == Reason::full);
    CHECK(refused != Reason::cannot_cut);
    CHECK(refused != Refusal{Reason::full, 0});
    const Refusal with_numbers{.reason = Reason::full, .member = 1, .needed = 3, .available = 2};
    CHECK(refused == with_numbers); // the numbers do not count
    CHECK(to_string(with_numbers) == "member 1: full: fewer cells are free than the operation needs; needs 3, has 2");
    CHECK(to_string(refused) == "member 1: full: fewer cells are free than the operation needs");
    CHECK(violation_of([&] { Result<int>{refused}.value(); })
          == "a refused result has no value: member 1: full: fewer cells are free than the operation needs");
}

TEST_CASE("hybrid: RotateBy applies to the members that rotate keys") {
    using Rotating = Cache<StandardV<float>, FullCausal, numbers::Adding>;
    using Plain = Cache<StandardV<float>, FullCausal, UnrotatedShift>;
    Hybrid<Repeat<Rotating, Plain>, Rotating, Plain> memory{2, Rotating{numbers::small, {.capacity = 8, .batch = 8}},
                                                            Plain{numbers::small, {.capacity = 8, .batch = 8}}};
    const auto tokens = numbers::prompt(0, 0, {10, 20, 30, 40, 50});
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 5}).value();
    for (int layer = 0; layer < 2; ++layer)
        pass.visit(layer, [&](auto& own, int) { numbers::put(own, numbers::small, tokens); });
    pass.commit();
    REQUIRE(memory.remove(Sequence{0}, Position{1}, Position{4}, RotateBy{2}));
    CHECK(numbers::held(memory.member<0>(), 0) == numbers::Held{{10, 10}, {50, 48}});
    CHECK(numbers::held(memory.member<1>(), 0) == numbers::Held{{10, 10}, {50, 50}});
    CHECK(memory.next(Sequence{0}) == Position{2});
    // The other members refuse as they do without it.
    toy::Memory with_states = toy::memory();
    REQUIRE(feed(with_states, text(0, 0, 4)));
    CHECK(with_states.remove(Sequence{0}, Position{1}, Position{2}, RotateBy{0}).error()
          == Refusal{Reason::cannot_shift, 0});
}

} // namespace test_operations
