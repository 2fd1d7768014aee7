// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every prefix tree does, with a memory that forgets nothing.
#include "../violations.hpp"
#include "reader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_tree {

using namespace cellar;
using namespace prefix_test;

namespace {

using Shifting = cellar::Cache<StandardV<float>, FullCausal, UnrotatedShift>;

/// As often happens: a prompt, and questions behind it.
const List prompt = counted(100, 20);
const List question = prompt + counted(200, 5);
const List other_question = prompt + counted(300, 7);

} // namespace

TEST_CASE("tokens that were inserted are attached, and nothing is computed again") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    CHECK(serve(tree, 0, question) == PrefixMatch{0, 0});
    CHECK(tree.attach(Sequence{1}, question).value() == PrefixMatch{25, 25});
    CHECK(lacks(memory, 1, question) == "");
    CHECK(memory.statistics().free == 75); // the cells are shared
    CHECK(&tree.memory() == &memory);
}

TEST_CASE("a prefix stays when the sequence that computed it is gone") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    leave(tree, 0);
    REQUIRE(compute(memory, 0, counted(7, 30)));
    CHECK(tree.attach(Sequence{1}, question).value().length == 25);
    CHECK(lacks(memory, 1, question) == "");
    CHECK(audit(memory) == "");
}

TEST_CASE("a memory that forgets nothing attaches a prefix up to any token") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(tree.attach(Sequence{1}, other_question).value() == PrefixMatch{20, 20});
    CHECK(lacks(memory, 1, prompt) == "");
    CHECK(tree.attach(Sequence{2}, first(1, prompt)).value() == PrefixMatch{1, 1});
    CHECK(tree.attach(Sequence{3}, counted(0, 5)).value() == PrefixMatch{0, 0});
    CHECK(memory.next(Sequence{3}) == Position{0});
}

TEST_CASE("prefixes with several branches are stored once") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    CHECK(serve(tree, 1, other_question).length == 20);
    CHECK(tree.statistics().nodes == 3);
    CHECK(tree.statistics().snapshots == 3);
    CHECK(tree.statistics().tokens == 32);
    CHECK(memory.statistics().free == 100 - 32);
    for (int s = 0; s < 2; ++s) leave(tree, s);
    CHECK(memory.statistics().free == 100 - 32);
    CHECK(serve(tree, 2, other_question + List{1, 2}).length == 27);
    CHECK(serve(tree, 3, question + List{1, 2}).length == 25);
    CHECK(tree.statistics().nodes == 5);
}

TEST_CASE("a list that ends within an edge divides it, and needs nothing of the sequence's own") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    REQUIRE(compute(memory, 1, prompt)); // by itself: cells of its own
    CHECK(memory.statistics().free == 100 - 45);
    REQUIRE(tree.insert(Sequence{1}, prompt));
    CHECK(audit(tree) == "");
    CHECK(tree.statistics().nodes == 2);
    leave(tree, 1);
    CHECK(memory.statistics().free == 75);
    CHECK(tree.attach(Sequence{1}, question).value().length == 25);
    CHECK(tree.attach(Sequence{2}, prompt).value().length == 20);
    CHECK(lacks(memory, 1, question) == "");
    CHECK(lacks(memory, 2, prompt) == "");
}

TEST_CASE("inserting what the tree has changes nothing") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, question);
    CHECK(tree.statistics().nodes == 1);
    CHECK(tree.statistics().snapshots == 1);
    CHECK(tree.insert(Sequence{0}, {}));
    CHECK(tree.statistics().nodes == 1);
}

TEST_CASE("a sequence may have more tokens than are inserted") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    REQUIRE(compute(memory, 0, question));
    REQUIRE(tree.insert(Sequence{0}, prompt));
    CHECK(tree.attach(Sequence{1}, question).value() == PrefixMatch{20, 20});
}

TEST_CASE("prefixes with different salts never match") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question, 1);
    CHECK(tree.attach(Sequence{1}, question).value() == PrefixMatch{0, 0});
    CHECK(tree.attach(Sequence{1}, question, 2).value() == PrefixMatch{0, 0});
    CHECK(tree.match(question, 2) == PrefixMatch{0, 0});
    CHECK(tree.pin(question, 2).length() == 0);
    serve(tree, 2, question, UINT64_MAX);
    CHECK(tree.statistics().nodes == 2);
    CHECK(tree.attach(Sequence{1}, question, 1).value().length == 25);
    CHECK(tree.attach(Sequence{3}, question, UINT64_MAX).value().length == 25);
    CHECK(memory.statistics().free == 50);
}

TEST_CASE("match says what attach would do, and does nothing") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, question);
    serve(tree, 1, other_question);
    const PrefixTree<toy::Full>& constant = tree;
    const PrefixStatistics before = tree.statistics();
    CHECK(constant.match(question) == PrefixMatch{25, 25});
    CHECK(constant.match(prompt) == PrefixMatch{20, 20});
    CHECK(constant.match(first(3, prompt)) == PrefixMatch{3, 3});
    CHECK(constant.match({}) == PrefixMatch{0, 0});
    CHECK(tree.statistics().hits + tree.statistics().misses == before.hits + before.misses);
    CHECK(memory.next(Sequence{2}) == Position{0});
}

TEST_CASE("the statistics count calls and tokens of attach") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    CHECK(tree.attach(Sequence{0}, question).value().length == 0);
    REQUIRE(compute(memory, 0, question));
    REQUIRE(tree.insert(Sequence{0}, question));
    CHECK(tree.attach(Sequence{1}, other_question).value().length == 20);
    CHECK(tree.attach(Sequence{2}, prompt).value().length == 20);
    CHECK(tree.attach(Sequence{3}, {}).value().length == 0); // asks for nothing
    const PrefixStatistics statistics = tree.statistics();
    CHECK(statistics.misses == 1);
    CHECK(statistics.partial_hits == 1);
    CHECK(statistics.hits == 1);
    CHECK(statistics.tokens_asked == 25 + 27 + 20);
    CHECK(statistics.tokens_attached == 40);
    CHECK(statistics.evictions == 0);
}

TEST_CASE("a node may have thousands of children") {
    toy::Full memory = full(5000);
    PrefixTree tree{memory};
    for (int i = 0; i < 4000; ++i) {
        const List list{1, 1000 + i};
        REQUIRE(tree.attach(Sequence{0}, list).value().length == (i > 0 ? 1 : 0));
        REQUIRE(compute(memory, 0, list));
        REQUIRE(tree.insert(Sequence{0}, list));
        leave(tree, 0);
    }
    CHECK(tree.statistics().nodes == 4001);
    CHECK(tree.statistics().tokens == 4001);
    for (const int i : {0, 1, 1999, 3999}) CHECK(tree.match(List{1, 1000 + i}).length == 2);
    CHECK(tree.match(List{1, 999}).length == 1);
    CHECK(tree.match(List{1, 5000}).length == 1);
    tree.clear();
    CHECK(tree.statistics().nodes == 0);
    CHECK(memory.statistics().free == 5000);
}

TEST_CASE("any numbers are tokens") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    const List odd{-1, INT32_MIN, INT32_MAX, 0, -1};
    REQUIRE(compute(memory, 0, counted(0, 5)));
    REQUIRE(tree.insert(Sequence{0}, odd));
    CHECK(tree.match(odd).length == 5);
    CHECK(tree.match(List{-1, INT32_MAX}).length == 1);
}

TEST_CASE("a tree can be moved, and its pins move along") {
    toy::Full memory = full(100);
    std::optional<PrefixTree<toy::Full>> tree{memory};
    serve(*tree, 0, question);
    PrefixPin pin = tree->pin(prompt);
    CHECK(pin.length() == 20);
    PrefixTree<toy::Full> moved{*std::move(tree)};
    CHECK(moved.match(question).length == 25);
    CHECK(violation_of([&] { (void)tree->match(question); }) == "the tree was moved from, expected one that was not");
    tree.reset();
    CHECK(pin.length() == 20);
    moved.clear();
    CHECK(moved.match(question).length == 25);
    moved = PrefixTree{memory};
    CHECK(pin.length() == 0);
    leave(moved, 0);
    CHECK(memory.statistics().free == 100);
}

TEST_CASE("a tree may outlive its memory, and can then be destroyed") {
    std::optional<toy::Full> memory{full(100)};
    const PrefixTree tree{*memory};
    auto& changing = const_cast<PrefixTree<toy::Full>&>(tree);
    serve(changing, 0, question);
    memory.reset();
    CHECK(tree.statistics().snapshots == 1);
}

TEST_CASE("tokens that share a position are not inserted") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    compute_image(memory, 0);
    REQUIRE(memory.next(Sequence{0}) == Position{8});
    const Refusal shared{.reason = Reason::shared_position, .sequence = Sequence{0}};
    CHECK(tree.insert(Sequence{0}, counted(0, 8)).error() == shared);
    CHECK(tree.insert(Sequence{0}, counted(0, 4)).error() == shared);
    CHECK(to_string(tree.insert(Sequence{0}, counted(0, 8)).error())
          == "shared position: tokens of the sequence share a position, as those of an image do; sequence 0; asked for "
             "end 8, shared is position 3");
    CHECK(tree.statistics().nodes == 0);
    CHECK(tree.insert(Sequence{0}, counted(0, 3))); // the tokens before them
    CHECK(tree.attach(Sequence{1}, counted(0, 8)).value().length == 3);
    CHECK(memory.tokens(Sequence{1}) == 3);
    CHECK(audit(tree) == "");
}

TEST_CASE("a sequence whose gap was closed is not inserted until it goes back to where that was") {
    Shifting memory{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 4, .cells = 100, .batch = 8}};
    PrefixTree tree{memory};
    serve(tree, 0, question);
    tree.clear();
    REQUIRE(memory.remove(Sequence{0}, Position{12}, Position{15}));
    const List rest = first(12, question) + List{question.begin() + 15, question.end()};
    const Refusal altered{.reason = Reason::altered, .sequence = Sequence{0}};
    CHECK(tree.insert(Sequence{0}, rest).error() == altered);
    CHECK(tree.insert(Sequence{0}, first(13, rest)).error() == altered);
    CHECK(to_string(tree.insert(Sequence{0}, rest).error())
          == "altered: some keys of the sequence are not those that its tokens alone would give; sequence 0; asked for "
             "end 22, altered from position 12");
    CHECK(tree.statistics().nodes == 0);
    CHECK(tree.match(rest).length == 0);
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, to_end));
    CHECK(tree.insert(Sequence{1}, rest).error() == Refusal{.reason = Reason::altered, .sequence = Sequence{1}});
    CHECK(tree.insert(Sequence{0}, first(12, rest))); // the tokens before the gap
    REQUIRE(memory.rewind(Sequence{0}, Position{12}));
    REQUIRE(compute(memory, 0, rest));
    CHECK(tree.insert(Sequence{0}, rest));
    CHECK(tree.attach(Sequence{2}, rest).value().length == 22);
    CHECK(memory.altered_from(Sequence{2}) == to_end);
    CHECK(audit(tree) == "");
}

TEST_CASE("a sequence that is not empty is not attached to, and nothing changes") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, prompt);
    const PrefixStatistics before = tree.statistics();
    const auto refused = tree.attach(Sequence{0}, question);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Refusal{.reason = Reason::not_empty, .sequence = Sequence{0}});
    CHECK(tree.statistics().tokens_asked == before.tokens_asked);
    CHECK(memory.tokens(Sequence{0}) == 20);
}

TEST_CASE("a sequence that goes on at a later position, though it has no tokens, is not attached to") {
    using Chunks = cellar::Cache<StandardV<float>, ChunkedAttention<4>>;
    Chunks memory{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}};
    PrefixTree tree{memory};
    serve(tree, 0, question);
    REQUIRE(compute(memory, 1, counted(0, 10)));
    REQUIRE(memory.rewind(Sequence{1}, Position{4})); // a chunk begins there, so nothing before it is needed
    REQUIRE(memory.tokens(Sequence{1}) == 0);
    const PrefixStatistics before = tree.statistics();
    CHECK(tree.attach(Sequence{1}, question).error() == Refusal{.reason = Reason::not_empty, .sequence = Sequence{1}});
    CHECK(tree.statistics().tokens_asked == before.tokens_asked);
    CHECK(memory.next(Sequence{1}) == Position{4});
    CHECK(memory.tokens(Sequence{1}) == 0);
    REQUIRE(memory.rewind(Sequence{1}, Position{0}));
    CHECK(tree.attach(Sequence{1}, question).value().length == 25);
    CHECK(audit(tree) == "");
}

TEST_CASE("the nodes of a tree can be visited, parents first, with their tokens and what they keep") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    tree.visit([](const auto&) { FAIL("an empty tree has no nodes"); });
    serve(tree, 0, question);
    serve(tree, 1, other_question);
    serve(tree, 2, counted(500, 3), 7);
    const PrefixPin pin = tree.pin(question);
    struct Seen {
        List path;
        std::uint64_t salt;
        int cells;
        std::int64_t pins;
    };
    std::vector<Seen> seen;
    std::vector<List> above;
    std::as_const(tree).visit([&](const PrefixNodeView<toy::Full>& node) {
        REQUIRE(node.depth <= static_cast<int>(above.size()));
        above.resize(static_cast<std::size_t>(node.depth));
        const List path = (above.empty() ? List{} : above.back()) + List{node.tokens.begin(), node.tokens.end()};
        CHECK(node.begin.value + std::ssize(node.tokens) == std::ssize(path));
        above.push_back(path);
        int cells = 0;
        if (node.snapshot != nullptr) node.snapshot->visit_cells([&](Position, Cell, std::int32_t n) { cells += n; });
        CHECK((node.snapshot == nullptr || node.snapshot->to().value == static_cast<int>(path.size())));
        seen.push_back({path, node.salt, cells, node.pins});
    });
    REQUIRE(std::ssize(seen) == tree.statistics().nodes);
    const auto of = [&](const List& list) {
        const auto found = std::find_if(seen.begin(), seen.end(), [&](const Seen& s) { return s.path == list; });
        REQUIRE(found != seen.end());
        return *found;
    };
    CHECK(of(question).pins == 1);
    CHECK(of(question).cells == 5); // what it has beyond the common prompt
    CHECK(of(prompt).cells == 20);
    CHECK(of(other_question).pins == 0);
    CHECK(of(counted(500, 3)).salt == 7);
    CHECK(of(prompt).salt == 0);
}

TEST_CASE("mistakes are violations that say what was given and what was expected") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, prompt);
    CHECK(violation_of([&] { (void)tree.insert(Sequence{0}, question); })
          == "insert: 25 tokens, expected at most the 20 of sequence 0");
    CHECK(violation_of([&] { (void)tree.attach(Sequence{9}, question).value(); }) == "sequence 9, expected 0 to 3");
    CHECK(violation_of([&] {
              (void)PrefixTree{memory, {.usefulness = nullptr}};
          })
          == "limits: no function for the usefulness, expected one");
    CHECK(audit(tree) == "");
}

} // namespace test_tree
