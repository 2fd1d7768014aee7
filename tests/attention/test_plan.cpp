// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/pass_tokens.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace test_plan {

using namespace cellar;
using namespace cellar::detail;

namespace {

constexpr std::int32_t run = 16;
constexpr std::int32_t length = 1024;

/// Sequences of `length` tokens, in runs of 16. Run i of sequence s begins with cell (first[s] + i * step) * 16.
std::vector<PositionRuns> sequences(const std::vector<Cell>& first, Cell step) {
    std::vector<PositionRuns> runs;
    for (const Cell cell : first) {
        runs.emplace_back(length / run);
        for (std::int32_t i = 0; i < length / run; ++i)
            runs.back().insert(Position{i * run}, (cell + i * step) * run, run);
    }
    return runs;
}

/// The sequence and the part of each item, in the order in which they are worked on. The batch has the last token of
/// each sequence, which sees all of it.
std::vector<std::vector<std::int64_t>> items_in_order(const std::vector<PositionRuns>& runs) {
    const auto n = static_cast<std::int32_t>(runs.size());
    ScratchArrays counted;
    PassTokens{n, counted};
    Scratch memory;
    ScratchArrays arrays{memory.reserve(counted.bytes())};
    PassTokens tokens{n, arrays};
    for (const PositionRuns& of_sequence : runs) {
        const std::int32_t i = tokens.count++;
        tokens.ranges[i] = {i, length - 1, 0, length};
        tokens.sequences[i] = {&of_sequence, i, 1, length - 1};
    }
    std::vector<TokenBlock> blocks(static_cast<std::size_t>(AttentionPlan::max_blocks(n)));
    AttentionPlan plan{{n, 8, 2, 64, 64}, tokens, blocks.data(), false};
    Scratch order;
    plan.order_items(order);
    std::vector<std::vector<std::int64_t>> items;
    for (std::int64_t i = 0; i < plan.items(); ++i) {
        const TokenBlock& block = plan.block_of(plan.item(i));
        items.push_back({block.first, plan.item(i) - block.first_item});
    }
    return items;
}

} // namespace

TEST_CASE("items are worked on in the order of their cells") {
    const std::vector<std::vector<std::int64_t>> by_sequence{{0, 0}, {0, 1}, {0, 2}, {0, 3},
                                                             {1, 0}, {1, 1}, {1, 2}, {1, 3}};
    CHECK(items_in_order(sequences({0, length / run}, 1)) == by_sequence);
    const std::vector<std::vector<std::int64_t>> alternating{{0, 0}, {1, 0}, {0, 1}, {1, 1},
                                                             {0, 2}, {1, 2}, {0, 3}, {1, 3}};
    CHECK(items_in_order(sequences({0, 1}, 2)) == alternating);
}

TEST_CASE("a plan serves the layers of one pass that have the same heads") {
    Cache<StandardV<float>> cache{{.layers = 2, .kv_heads = 2, .head_dim = 8},
                                  {.sequences = 1, .capacity = 64, .batch = 16}};
    const std::vector<float> rows(std::size_t{5} * 2 * 8);
    constexpr int mark = 7; // in place of 0 tokens of a tree, to see whether a plan is made again
    for (int begin = 0; begin < 10; begin += 5) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{begin}, 5}).value();
        for (int layer = 0; layer < 2; ++layer) pass.put(layer, rows, rows);
        auto source = pass.attention_source("test", 1);
        CHECK(source.memory().planned_for == nullptr);
        plan_of(source, {5, 4, 2, 8, 8}, false).tokens().stored = mark;
        CHECK(plan_of(source, {5, 4, 2, 8, 8}, false).tokens().stored == mark);
        CHECK(plan_of(source, {5, 8, 2, 8, 8}, false).tokens().stored == 0); // more query heads
        plan_of(source, {5, 8, 2, 8, 8}, false).tokens().stored = mark;
        CHECK(plan_of(source, {5, 8, 2, 8, 4}, false).tokens().stored == 0); // partial results are shorter
        plan_of(source, {5, 8, 2, 8, 4}, false).tokens().stored = mark;
        CHECK(plan_of(source, {5, 8, 2, 8, 4}, true).tokens().stored == 0); // prefixes are shared
        plan_of(source, {5, 8, 2, 8, 4}, true).tokens().stored = mark;
        CHECK(plan_of(source, {5, 8, 4, 8, 4}, true).tokens().stored == 0); // more heads of keys
        pass.commit();
    }
}

} // namespace test_plan
