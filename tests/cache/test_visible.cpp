// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cells that a token sees, as runs.
#include "../violations.hpp"
#include "numbers.hpp"

#include <cmath>
#include <limits>

namespace test_visible {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;

namespace {

std::vector<CellRange> runs_of(std::span<const CellRange> runs) {
    return {runs.begin(), runs.end()};
}

} // namespace

TEST_CASE("visible cells are runs in the order of memory, for each token of the batch") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 3, .capacity = 6, .batch = 8, .placement = Placement::scattered}};
    for (int p = 0; p < 3; ++p) feed(cache, {{0, p, 1}, {1, p, 2}, {2, p, 3}}); // cells 0 to 8, in turn
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));                    // 1, 4 and 7 are free
    auto pass = numbers::begin(cache, prompt(0, 3, {4, 5}) + prompt(1, 0, {6}));
    REQUIRE(pass);
    // The batch has no run of three cells below 9.
    CHECK(runs_of(pass->visible(0)) == std::vector<CellRange>{{0, 1}, {3, 1}, {6, 1}, {9, 1}});
    CHECK(runs_of(pass->visible(1)) == std::vector<CellRange>{{0, 1}, {3, 1}, {6, 1}, {9, 2}});
    CHECK(runs_of(pass->visible(2)) == std::vector<CellRange>{{11, 1}});
    CHECK(violation_of([&] { (void)pass->visible(3); }) == "visible: token 3, expected 0 to 2");
    CHECK(violation_of([&] { (void)pass->visible(-1); }) == "visible: token -1, expected 0 to 2");
}

TEST_CASE("adjacent runs are joined across the borders of words") {
    numbers::Cache<> cache{numbers::small, {.capacity = 300, .batch = 300}};
    for (int p = 0; p < 200; p += 50) feed(cache, prompt(0, p, Values(50)));
    auto pass = numbers::begin(cache, prompt(0, 200, {1}));
    CHECK(runs_of(pass->visible(0)) == std::vector<CellRange>{{0, 201}});
}

TEST_CASE("the runs agree with the mask, for windows with sinks and for groups") {
    numbers::Cache<SlidingWindow<3>> cache{
        numbers::small, {.capacity = 30, .batch = 12}, SlidingWindow<3>{{.sinks = 2}}};
    auto pass = numbers::begin(cache, prompt(0, 0, Values(6)) + numbers::Numbers{{0, 6, 1, 0}, {0, 7, 2, 0}});
    CHECK(runs_of(pass->visible(5)) == std::vector<CellRange>{{0, 2}, {3, 3}});
    CHECK(runs_of(pass->visible(6)) == std::vector<CellRange>{{0, 2}, {4, 4}});
    CHECK(runs_of(pass->visible(7)) == std::vector<CellRange>{{0, 2}, {5, 3}});
}

TEST_CASE("a token of a tree sees its own branch in masks and runs, and lists have all branches") {
    // Behind positions 0 to 3: a, then b and c behind a, d behind b, and e behind c. The window is four, with one sink.
    using Windowed = numbers::Cache<SlidingWindow<4>>;
    Windowed cache{numbers::small,
                   {.sequences = 2, .capacity = 60, .batch = 8, .placement = Placement::scattered},
                   SlidingWindow<4>{{.sinks = 1}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, to_end));
    const std::string before = numbers::portrait(cache);
    {
        const BatchBuilder tree =
            BatchBuilder{Sequence{0}, Position{4}}.add_child(0).add_child(0).add_child(1).add_child(2);
        const BatchBuilder beside = BatchBuilder{tree}.add(Sequence{1}, Position{4}, 2);
        auto pass = cache.begin(beside).value();
        const std::span<const Cell> cells = pass.cells(); // 4 to 10
        REQUIRE(std::vector<Cell>(cells.begin(), cells.end()) == std::vector<Cell>{4, 5, 6, 7, 8, 9, 10});
        const auto mask = pass.mask<bool>();
        const std::vector<std::vector<CellRange>> expected{{{0, 5}},
                                                           {{0, 1}, {2, 4}},
                                                           {{0, 1}, {2, 3}, {6, 1}},
                                                           {{0, 1}, {3, 3}, {7, 1}},
                                                           {{0, 1}, {3, 2}, {6, 1}, {8, 1}},
                                                           {{0, 4}, {9, 1}},
                                                           {{0, 1}, {2, 2}, {9, 2}}};
        for (std::int32_t token = 0; token < pass.tokens(); ++token) {
            CAPTURE(token);
            const auto runs = runs_of(pass.visible(token));
            CHECK(runs == expected[static_cast<std::size_t>(token)]);
            std::vector<bool> shown(static_cast<std::size_t>(pass.history().count));
            for (const CellRange& run : runs)
                for (Cell c = run.first; c < run.first + run.count; ++c)
                    shown[static_cast<std::size_t>(c - pass.history().first)] = true;
            for (Cell c = 0; c < pass.history().count; ++c) CHECK(mask(token, c) == shown[static_cast<std::size_t>(c)]);
        }
        const CellLists lists = pass.lists();
        CHECK(std::vector<Cell>(lists.cells(0).begin(), lists.cells(0).end())
              == std::vector<Cell>{0, 1, 2, 3, 4, 5, 6, 7, 8});
    }
    CHECK(numbers::portrait(cache) == before);
    auto next = cache.begin(BatchBuilder{Sequence{0}, Position{4}, 2}).value();
    CHECK(runs_of(next.visible(1)) == std::vector<CellRange>{{0, 1}, {2, 4}});
}

TEST_CASE("a token of a tree sees no later one of its group, and a chain sees what it sees without parents") {
    numbers::Cache<> cache{numbers::small, {.sequences = 1, .capacity = 20, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2}));
    const std::vector<Position> positions{Position{2}, Position{3}};
    const std::vector<Sequence> sequences(2);
    const std::vector<std::int32_t> group{0, 0}, parents{-1, 0};
    auto grouped = cache.begin(Batch{positions, sequences, group, {}, parents}).value();
    CHECK(runs_of(grouped.visible(0)) == std::vector<CellRange>{{0, 3}});
    grouped.drop();
    auto chain = cache.begin(BatchBuilder{Sequence{0}, Position{2}}.add_child(0)).value();
    CHECK(runs_of(chain.visible(0)) == std::vector<CellRange>{{0, 3}});
    CHECK(runs_of(chain.visible(1)) == std::vector<CellRange>{{0, 4}});
}

TEST_CASE("a reserved pass sees all cells, and an encoder's pass sees inputs only") {
    numbers::Cache<> cache{numbers::small, {.capacity = 6, .batch = 2}};
    auto reserved = cache.reserve(2);
    CHECK(runs_of(reserved.visible(1)) == std::vector<CellRange>{{0, 6}});
    reserved.drop();
    EncoderMemory<> inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 6, .batch = 4}};
    auto written = inputs.write(Sequence{0}, Position{2}, 3).value();
    CHECK(runs_of(written.visible(0)) == std::vector<CellRange>{{0, 3}});
    written.put(0, Values(3), Values(3));
    written.commit();
    auto pass = inputs.begin(BatchBuilder{Sequence{0}, Position{1}, 2}).value();
    CHECK(runs_of(pass.visible(0)).empty());
    CHECK(runs_of(pass.visible(1)) == std::vector<CellRange>{{0, 3}});
}

TEST_CASE("the runs are those of the open pass") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 2, .capacity = 6, .batch = 4, .placement = Placement::scattered}};
    for (int p = 0; p < 4; ++p) {
        auto pass = numbers::begin(cache, prompt(p % 2, p / 2, {1}));
        CHECK(pass->visible(0).size() == static_cast<std::size_t>(p / 2 + 1));
        numbers::put(*pass, cache.shape(), prompt(p % 2, p / 2, {1}));
        pass->commit();
    }
}

TEST_CASE("a NaN of one sequence does not reach others that read visible cells only") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 4, .batch = 4}};
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int p = 0; p < 3; ++p) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{p}}.add(Sequence{1}, Position{p})).value();
        pass.put(0, Values{nan, 1}, Values{nan, 2});
        const auto [keys, values, mask] = pass.get(0);
        float through_mask = 0; // the weights of hidden cells are 0
        for (int c = 0; c < pass.history().count; ++c) through_mask += std::exp(mask(1, c)) * values(c, 0, 0);
        CHECK(std::isnan(through_mask));
        float through_runs = 0;
        for (const CellRange& run : pass.visible(1))
            for (Cell c = run.first; c < run.first + run.count; ++c)
                through_runs += values(c - pass.history().first, 0, 0);
        CHECK(through_runs == static_cast<float>(2 * (p + 1)));
        pass.commit();
    }
}

} // namespace test_visible
