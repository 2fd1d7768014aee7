// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Inputs of an encoder that wait for the next token of their sequence.
#include "failing_allocations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace test_inputs {

using namespace cellar;
using toy::Full;
using toy::text;

namespace {

using Inputs = EncoderMemory<StandardV<float>>;
using Memory = Hybrid<Repeat<Full>, Inputs, Full>;

const CacheLimits limits{.sequences = 3, .capacity = 30, .batch = 8};

Memory memory() {
    return Memory{1, Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                  Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
}

/// An input of two tokens with the values `first` and `first` + 1.
void write(Inputs& inputs, int sequence, int position, int first) {
    auto pass = inputs.write(Sequence{sequence}, Position{position}, 2).value();
    const std::vector<float> rows{static_cast<float>(first), static_cast<float>(first + 1)};
    pass.put(0, rows, rows);
    pass.commit();
}

/// " position:value" for each token of the inputs of a sequence.
std::string inputs(Inputs& all, int sequence) {
    return std::regex_replace(toy::contents(all, sequence), std::regex{"@[0-9]+"}, "");
}
std::string inputs(Memory& m, int sequence) {
    return inputs(m.member<Inputs>(), sequence);
}

/// Sequence 0 has n tokens, an input at position 1, one at the next token and one behind it.
Memory waiting(int n) {
    Memory m = memory();
    if (n > 1) write(m.member<Inputs>(), 0, 1, 10);
    REQUIRE(toy::feed(m, text(0, 0, n), 1));
    write(m.member<Inputs>(), 0, n, 20);
    write(m.member<Inputs>(), 0, n + 2, 30);
    return m;
}
std::string all_of_waiting(int n) {
    const std::string next = ' ' + std::to_string(n) + ':';
    const std::string behind = ' ' + std::to_string(n + 2) + ':';
    return (n > 1 ? " 1:10 1:11" : "") + next + "20" + next + "21" + behind + "30" + behind + "31";
}

} // namespace

TEST_CASE("a snapshot of a whole sequence has the inputs that wait for its next token") {
    for (const int n : {0, 4}) {
        Memory m = waiting(n);
        auto snapshot = m.snapshot(Sequence{0}).value();
        CHECK(snapshot.to() == Position{n});
        REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
        CHECK(inputs(m, 0) == "");
        REQUIRE(m.restore(Sequence{1}, snapshot));
        CHECK(inputs(m, 1) == all_of_waiting(n));
        CHECK(m.next(Sequence{1}) == Position{n});
        m.offload(snapshot);
        REQUIRE(m.restore(Sequence{2}, snapshot, Position{n})); // its end
        CHECK(inputs(m, 2) == all_of_waiting(n));
        REQUIRE(m.reload(snapshot));
        REQUIRE(m.restore(Sequence{0}, snapshot));
        CHECK(inputs(m, 0) == all_of_waiting(n));
        CHECK(audit(m.member<Inputs>()) == "");
    }
}

TEST_CASE("a snapshot up to a position, and one restored up to an earlier position, has only inputs below it") {
    Memory m = waiting(4);
    for (const auto& snapshot :
         {m.snapshot(Sequence{0}, Position{0}, Position{4}), m.snapshot(Sequence{0}, Position{0}, Position{3})}) {
        REQUIRE(m.restore(Sequence{1}, *snapshot));
        CHECK(inputs(m, 1) == " 1:10 1:11");
    }
    const auto whole = m.snapshot(Sequence{0}).value();
    REQUIRE(m.restore(Sequence{2}, whole, Position{3}));
    CHECK(inputs(m, 2) == " 1:10 1:11");
    REQUIRE(m.restore(Sequence{2}, whole, Position{1}));
    CHECK(inputs(m, 2) == "");
}

TEST_CASE("a copy of a whole sequence has the inputs that wait, and a shorter one has those below its length") {
    for (const int n : {0, 4})
        for (const int length : {n, n + 1}) {
            Memory m = waiting(n);
            REQUIRE(m.copy_prefix(Sequence{0}, Sequence{1}, Position{length}));
            CHECK(inputs(m, 1) == all_of_waiting(n));
            CHECK(m.next(Sequence{1}) == Position{n});
        }
    Memory m = waiting(4);
    REQUIRE(m.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    CHECK(inputs(m, 1) == " 1:10 1:11");
}

TEST_CASE("going back to the next token keeps the inputs that wait for it, and going back further drops them") {
    for (const int n : {0, 4}) {
        Memory m = waiting(n);
        REQUIRE(m.rewind(Sequence{0}, Position{n}));
        CHECK(inputs(m, 0) == all_of_waiting(n));
    }
    Memory m = waiting(4);
    for (const Position end : {Position{4}, Position{5}, to_end}) {
        REQUIRE(m.remove(Sequence{0}, Position{4}, end));
        REQUIRE(m.remove(Sequence{0}, Position{4}, end, RotateBy{1}));
        CHECK(inputs(m, 0) == all_of_waiting(4));
    }
    REQUIRE(m.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(m.rewind(Sequence{0}, Position{3}));
    CHECK(inputs(m, 0) == " 1:10 1:11");
    REQUIRE(m.remove(Sequence{1}, Position{3}, to_end));
    CHECK(inputs(m, 1) == " 1:10 1:11");
}

TEST_CASE("inputs that wait move down with the tokens, and are dropped by their memory or with the whole sequence") {
    Memory m = memory();
    REQUIRE(toy::feed(m, text(0, 0, 4), 1));
    write(m.member<Inputs>(), 0, 4, 20);
    REQUIRE(m.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(m.member<Inputs>().remove(Sequence{1}, m.next(Sequence{1}), to_end));
    CHECK(inputs(m, 1) == "");
    CHECK(m.next(Sequence{1}) == Position{4});

    Memory none = waiting(0); // a user who leaves before the first token
    REQUIRE(none.remove(Sequence{0}, Position{0}, to_end));
    CHECK(inputs(none, 0) == "");
    CHECK(none.member<Inputs>().statistics().free == 90);
}

TEST_CASE("what a snapshot of a whole sequence is merged with takes the place of the inputs that waited") {
    for (const bool parent_is_offloaded : {false, true})
        for (const bool child_is_offloaded : {false, true})
            for (const bool is_whole : {false, true}) {
                Memory m = waiting(4);
                auto parent = m.snapshot(Sequence{0}).value();
                REQUIRE(toy::feed(m, text(0, 4, 3), 1));
                write(m.member<Inputs>(), 0, 7, 40);
                auto child = m.snapshot(Sequence{0}, Position{4}, is_whole ? to_end : Position{7}).value();
                if (parent_is_offloaded) m.offload(parent);
                if (child_is_offloaded) m.offload(child);
                REQUIRE(m.merge(parent, std::move(child)));
                CHECK(parent.to() == Position{7});
                CHECK(audit(m.member<Inputs>()) == "");
                const std::string waits = is_whole ? " 7:40 7:41" : "";
                REQUIRE(m.remove(Sequence{0}, Position{0}, to_end));
                REQUIRE(m.restore(Sequence{1}, parent));
                CHECK(inputs(m, 1) == all_of_waiting(4) + waits);
                CHECK(parent.of<Inputs>().tokens() == (is_whole ? 8 : 6));
                { const auto given_up = std::move(parent); }
                REQUIRE(m.remove(Sequence{1}, Position{0}, to_end));
                CHECK(m.member<Inputs>().statistics().free == 90);
            }
}

TEST_CASE("a failed allocation in a merge with inputs that waited changes nothing") {
    for (const bool is_offloaded : {false, true}) {
        Memory m = waiting(4);
        auto parent = m.snapshot(Sequence{0}).value();
        REQUIRE(toy::feed(m, text(0, 4, 3), 1));
        auto child = m.snapshot(Sequence{0}, Position{4}).value();
        if (is_offloaded) m.offload(parent);
        const int failures = failures_of([&] { static_cast<void>(m.merge(parent, std::move(child))); },
                                         [&] {
                                             CHECK(parent.of<Inputs>().tokens() == 6);
                                             CHECK(child.of<Inputs>().tokens() == 4);
                                             CHECK(audit(m.member<Inputs>()) == "");
                                         });
        CHECK(failures > 1);
        CHECK(parent.of<Inputs>().tokens() == 6);
    }
}

TEST_CASE("a snapshot is divided at its end into the tokens and the inputs that wait") {
    Memory m = waiting(4);
    auto head = m.snapshot(Sequence{0}).value();
    const auto tail = m.split(head, Position{4}).value();
    REQUIRE(m.restore(Sequence{1}, head));
    CHECK(inputs(m, 1) == " 1:10 1:11");
    REQUIRE(m.restore(Sequence{1}, tail));
    CHECK(inputs(m, 1) == all_of_waiting(4));
}

TEST_CASE("inputs wait in a hybrid that is a member, and one without tokens has them at any position") {
    using Alone = Hybrid<Repeat<NoMemory>, Inputs>;
    using Whole = Hybrid<Repeat<Full>, Alone, Full>;
    Whole m{1, Alone{1, Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}},
            Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    Inputs& all = m.member<Alone>().member<Inputs>();
    write(all, 0, 1, 10);
    REQUIRE(toy::feed(m, text(0, 0, 3), 1));
    write(all, 0, 3, 20);
    const auto whole = m.snapshot(Sequence{0}).value();
    CHECK(whole.to() == Position{3});
    REQUIRE(m.restore(Sequence{1}, whole));
    CHECK(inputs(all, 1) == " 1:10 1:11 3:20 3:21");
    REQUIRE(m.restore(Sequence{1}, whole, Position{2}));
    CHECK(inputs(all, 1) == " 1:10 1:11");
    REQUIRE(m.copy_prefix(Sequence{0}, Sequence{2}, Position{3}));
    CHECK(inputs(all, 2) == " 1:10 1:11 3:20 3:21");
    REQUIRE(m.rewind(Sequence{2}, Position{3}));
    REQUIRE(m.remove(Sequence{2}, Position{3}, to_end));
    CHECK(inputs(all, 2) == " 1:10 1:11 3:20 3:21");

    Alone& alone = m.member<Alone>();
    CHECK(alone.snapshot(Sequence{0}).value().to() == to_end);
    REQUIRE(alone.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    CHECK(inputs(all, 1) == " 1:10 1:11");
    REQUIRE(alone.remove(Sequence{1}, Position{1}, Position{2}));
    CHECK(inputs(all, 1) == "");

    using Outer = Hybrid<Repeat<Memory>, Memory>;
    Outer outer{1, waiting(4)};
    const auto snapshot = outer.snapshot(Sequence{0}).value();
    REQUIRE(outer.restore(Sequence{1}, snapshot));
    REQUIRE(outer.copy_prefix(Sequence{1}, Sequence{2}, Position{4}));
    REQUIRE(outer.remove(Sequence{2}, Position{4}, to_end));
    CHECK(inputs(outer.member<Memory>(), 2) == all_of_waiting(4));
}

} // namespace test_inputs
