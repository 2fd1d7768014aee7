// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A failed allocation in any operation of a tree.
#include "../hybrid/failing_allocations.hpp"
#include "reader.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>

namespace test_want_of_memory {

using namespace cellar;
using namespace prefix_test;

namespace {

const List prompt = counted(100, 20);
const List question = prompt + counted(200, 5);
const List other_question = prompt + counted(300, 7);

/// What can be observed of a tree and its memory.
template <class M>
std::string portrait(M& memory, const PrefixTree<M>& tree) {
    std::string all;
    if constexpr (requires { memory.layers_of(0, 0); }) {
        all = toy::portrait(memory);
    } else {
        all = toy::member_portrait(memory);
    }
    for (const List& list : {prompt, question, other_question}) {
        const PrefixMatch match = tree.match(list);
        all += "\n" + std::to_string(match.length) + " of " + std::to_string(match.verified);
    }
    const PrefixStatistics s = tree.statistics();
    return all + "\n" + std::to_string(s.nodes) + " nodes, " + std::to_string(s.snapshots) + " snapshots, "
           + std::to_string(s.tokens) + " tokens; " + audit(tree);
}

/// Inserts with the first allocation failing, then the second, and so on.
template <class M>
void insert(M& memory, PrefixTree<M>& tree, int s, const List& list) {
    REQUIRE(compute(memory, s, list));
    const std::string before = portrait(memory, tree);
    bool inserted = false;
    const int failures = failures_of([&] { inserted = tree.insert(Sequence{s}, list).has_value(); },
                                     [&] { CHECK(portrait(memory, tree) == before); });
    CHECK(inserted);
    CHECK(failures > 0);
    CHECK(tree.match(list).length == static_cast<std::int32_t>(list.size()));
    CHECK(audit(tree) == "");
}

} // namespace

TEST_CASE("an insertion without memory changes nothing: cells") {
    toy::Full memory = full(200);
    PrefixTree tree{memory};
    insert(memory, tree, 0, question);
    insert(memory, tree, 1, other_question);    // leaves the edge
    insert(memory, tree, 2, first(10, prompt)); // ends within an edge
    insert(memory, tree, 3, counted(0, 9));     // from the root
}

TEST_CASE("an insertion without memory changes nothing: states") {
    toy::Recurrent memory = recurrent(10, 7);
    PrefixTree tree{memory};
    insert(memory, tree, 0, question);
    insert(memory, tree, 1, other_question);
    insert(memory, tree, 2, first(10, prompt));
    insert(memory, tree, 3, counted(0, 9));
}

TEST_CASE("an insertion without memory changes nothing: a hybrid") {
    toy::Memory memory = hybrid(10, 200);
    PrefixTree tree{memory};
    insert(memory, tree, 0, question);
    insert(memory, tree, 1, other_question);
    insert(memory, tree, 2, prompt); // where they part
    insert(memory, tree, 3, first(10, prompt));
}

TEST_CASE("an attachment without memory is a shorter one, or none, and never an error") {
    // Two sequences take cells in turn, so their runs have one cell: more runs than there is room for from the start.
    toy::Full memory{{.layers = 2, .kv_heads = 1, .head_dim = 1},
                     {.sequences = 100, .cells = 200, .batch = 1, .placement = Placement::scattered}};
    PrefixTree tree{memory};
    for (int length = 1; length <= 25; ++length) {
        for (const int s : {0, 2}) REQUIRE(compute(memory, s, first(length, question)));
        if (length % 5 == 0) REQUIRE(tree.insert(Sequence{0}, first(length, question)));
    }
    int successes = 0;
    for (std::int32_t length = 0; length < 25; ++successes) {
        REQUIRE(successes < 100);
        leave(tree, 1);
        {
            const FailingAllocations failing{successes};
            length = tree.attach(Sequence{1}, question).value().length;
        }
        CHECK(lacks(memory, 1, first(length, question)) == "");
        CHECK(audit(tree) == "");
    }
    CHECK(successes > 1);
}

TEST_CASE("an attachment of prefixes in place allocates nothing for the tree") {
    toy::Memory memory = hybrid(10, 200);
    PrefixTree tree{memory};
    for (const int length : {5, 10, 15, 20, 25}) {
        REQUIRE(compute(memory, 0, first(length, question)));
        REQUIRE(tree.insert(Sequence{0}, first(length, question)));
    }
    std::int32_t length = 0;
    {
        const FailingAllocations failing{0};
        length = tree.attach(Sequence{1}, question).value().length;
    }
    CHECK(length == 25);
    CHECK(lacks(memory, 1, question) == "");
}

TEST_CASE("match, pin and evict do not allocate") {
    toy::Full memory = full(200);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, other_question);
    {
        const FailingAllocations failing{0};
        CHECK(tree.match(question).length == 25);
        PrefixPin pin = tree.pin(question);
        PrefixPin moved{std::move(pin)};
        CHECK(moved.length() == 25);
        moved.release();
        CHECK(tree.evict());
        CHECK(tree.evict());
        CHECK(tree.evict());
    }
    CHECK(tree.statistics().nodes == 0);
    CHECK(audit(tree) == "");
}

TEST_CASE("without memory, a node that is not needed any more stays") {
    toy::Recurrent memory = recurrent(10);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, other_question);
    {
        const FailingAllocations failing{0};
        CHECK(tree.evict());
    }
    CHECK(tree.statistics().nodes == 2); // where they parted, and one behind it
    CHECK(audit(tree) == "");
    CHECK(tree.match(other_question).length == 27);
    CHECK(tree.evict());
    CHECK(tree.statistics().nodes == 0);
}

TEST_CASE("a tree that cannot be made is not made") {
    toy::Full memory = full(20);
    std::optional<PrefixTree<toy::Full>> tree; // g++ may leave out the allocations of a tree that is not used
    CHECK(failures_of([&] { tree.emplace(memory); }, [] {}) > 0);
    CHECK(tree->statistics().nodes == 0);
}

} // namespace test_want_of_memory
