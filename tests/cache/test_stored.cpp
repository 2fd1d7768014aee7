// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Batches of which a cache stores some tokens only.
#include "numbers.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>
#include <violations.hpp>

namespace test_stored {

using namespace cellar;

namespace {

using Layout = StandardV<float>;
template <class Window = FullCausal>
using Any = Cache<Layout, Window, DisabledShift, HostBackend>;

CacheShape one_layer() {
    return CacheShape{.each_layer = std::vector<LayerShape>{{1, 1, 1}}};
}

CacheLimits limits(std::int32_t cells, Placement placement = Placement::blocks) {
    return {.sequences = 2, .cells = cells, .batch = 8, .placement = placement, .positions = Positions::any};
}

/// Tokens of sequence 0 from a position on; '#' is stored, '.' is not.
struct Part {
    Part(Position first, const char* tokens) {
        for (; *tokens != 0; ++tokens) {
            positions.push_back(first);
            sequences.push_back(Sequence{0});
            stored.push_back(*tokens == '#' ? 1 : 0);
            if (*tokens == '#') rows.push_back(static_cast<float>(first.value));
            first = first + 1;
        }
    }
    operator Batch() const { return {positions, sequences, {}, stored}; }

    std::vector<Position> positions;
    std::vector<Sequence> sequences;
    std::vector<std::uint8_t> stored;
    std::vector<float> rows; ///< of the stored tokens: their positions
};

template <class Cache>
void commit(Cache& cache, const Part& part) {
    auto pass = cache.begin(part).value();
    pass.put(0, part.rows, part.rows);
    pass.commit();
}

struct Sum : StateTensor<1> {};

/// The rows that a token sees, in ascending order.
template <class Pass>
std::vector<float> seen(Pass& pass, std::int32_t token) {
    std::vector<float> rows;
    const auto keys = pass.keys(0);
    for (const CellRange& run : pass.visible(token))
        for (Cell c = run.first; c < run.first + run.count; ++c) rows.push_back(keys(c - pass.history().first, 0, 0));
    std::sort(rows.begin(), rows.end());
    return rows;
}

} // namespace

TEST_CASE("a token that is not stored takes no cell and sees what is stored before it") {
    for (const Placement placement : {Placement::blocks, Placement::scattered, Placement::contiguous}) {
        Any<> cache{one_layer(), limits(4, placement)};
        const Part part{Position{0}, "#..##."};
        auto pass = cache.begin(part).value();
        CHECK(pass.tokens() == 6);
        CHECK(pass.stored_tokens() == 3);
        CHECK(pass.cells().size() == 3);
        pass.put(0, part.rows, part.rows);
        CHECK(seen(pass, 0) == std::vector<float>{0});
        CHECK(seen(pass, 2) == std::vector<float>{0});
        CHECK(seen(pass, 4) == std::vector<float>{0, 3, 4});
        CHECK(seen(pass, 5) == std::vector<float>{0, 3, 4});
        CHECK(pass.mask<bool>().extent(0) == 6);
        pass.commit();
        CHECK(cache.tokens(Sequence{0}) == 3);
        CHECK(cache.next(Sequence{0}) == Position{5});
        CHECK(cache.begin(Part{Position{6}, "..##"}).error() == Reason::full);
        CHECK(cache.begin(Part{Position{6}, "..#."}).has_value());
    }
}

TEST_CASE("a pass that stores nothing needs no put and may see nothing") {
    Any<> cache{one_layer(), limits(4)};
    {
        auto pass = cache.begin(Part{Position{0}, "..."}).value();
        CHECK(pass.stored_tokens() == 0);
        CHECK(pass.history().count == 0);
        CHECK(pass.visible(2).empty());
        CHECK(pass.keys(0).extent(0) == 0);
        std::vector<float> out(3, 1);
        std::vector<float> sums(3);
        attend(pass, 0, std::vector<float>{1, 1, 1}, out, {.log_sum_exp = contiguous_view(sums.data(), 3, 1)});
        CHECK(out == std::vector<float>{0, 0, 0});
        CHECK(sums[0] == -std::numeric_limits<float>::infinity());
        pass.put(0, std::vector<float>{}, std::vector<float>{});
        pass.commit();
    }
    CHECK(cache.tokens(Sequence{0}) == 0);
    commit(cache, {Position{3}, "#"});
    auto reading = cache.begin(Part{Position{4}, "."}).value();
    CHECK(seen(reading, 0) == std::vector<float>{3});
}

TEST_CASE("a window moves on with tokens that are stored elsewhere") {
    Any<SlidingWindow<2>> cache{one_layer(),
                                {.sequences = 2, .capacity = 100, .batch = 8, .positions = Positions::any}};
    commit(cache, {Position{0}, "####"});
    CHECK(cache.tokens(Sequence{0}) == 3); // the width and one more
    commit(cache, {Position{4}, "."});
    CHECK(cache.tokens(Sequence{0}) == 2);
    commit(cache, {Position{5}, "...."});
    CHECK(cache.tokens(Sequence{0}) == 0);
    commit(cache, {Position{9}, ".#"});
    auto pass = cache.begin(Part{Position{11}, ".."}).value();
    CHECK(seen(pass, 0) == std::vector<float>{10});
    CHECK(seen(pass, 1).empty());
}

TEST_CASE("a dropped pass that is stored in part leaves nothing") {
    Any<> cache{one_layer(), limits(8)};
    commit(cache, {Position{0}, "##"});
    const auto cells = [&] {
        std::vector<Cell> all;
        cache.visit_cells(Sequence{0}, [&](Position p, Cell c, std::int32_t n) {
            all.insert(all.end(), {p.value, c, n});
        });
        return all;
    };
    const std::vector<Cell> before = cells();
    { const auto pass = cache.begin(Part{Position{2}, ".#.##"}).value(); }
    CHECK(cells() == before);
    CHECK(cache.statistics().free == 6);
}

TEST_CASE("tokens of a tree that are not stored have descendants that are") {
    Any<> cache{one_layer(), limits(8)};
    commit(cache, {Position{0}, "#"});
    // Two branches behind position 0: tokens 0 and 2, tokens 1 and 3. Token 0 is stored elsewhere.
    const std::vector<Position> positions{Position{1}, Position{1}, Position{2}, Position{2}};
    const std::vector<Sequence> sequences(4, Sequence{0});
    const std::vector<std::uint8_t> stored{0, 1, 1, 1};
    const std::vector<std::int32_t> parents{-1, -1, 0, 1};
    auto pass = cache.begin(Batch{positions, sequences, {}, stored, parents}).value();
    const std::vector<float> values{10, 20, 40};
    pass.put(0, std::vector<float>{0, 0, 0}, values);
    std::vector<float> out(4);
    attend(pass, 0, std::vector<float>(4), out); // equal scores: a mean
    CHECK(out[0] == doctest::Approx(0));
    CHECK(out[1] == doctest::Approx(5));
    CHECK(out[2] == doctest::Approx(10));
    CHECK(out[3] == doctest::Approx(50.0 / 3));
}

TEST_CASE("lists follow batches that are stored in part") {
    Any<> cache{one_layer(), limits(8)};
    commit(cache, {Position{0}, "#.#"});
    auto pass = cache.begin(Part{Position{3}, ".#."}).value();
    const CellLists lists = pass.lists();
    REQUIRE(lists.rows() == 1);
    CHECK(std::vector<std::int32_t>(lists.positions(0).begin(), lists.positions(0).end())
          == std::vector<std::int32_t>{0, 2, 4});
}

TEST_CASE("a growing cache gets memory for the tokens that it stores") {
    CacheLimits small = limits(64);
    small.initial_cells = 1;
    Any<> cache{one_layer(), small};
    commit(cache, {Position{0}, "......."});
    CHECK(cache.statistics().allocated == 1);
    commit(cache, {Position{7}, "#.#.#.##"});
    CHECK(cache.statistics().allocated >= 5);
    auto pass = cache.begin(Part{Position{15}, "."}).value();
    CHECK(seen(pass, 0) == std::vector<float>{7, 9, 11, 13, 14});
}

TEST_CASE("wrong lists of stored tokens are violations") {
    Any<> cache{one_layer(), limits(8)};
    Part part{Position{0}, "##."};
    part.stored.pop_back();
    CHECK(violation_of([&] { (void)cache.begin(part); }).find("expected none or one for each of 3 tokens")
          != std::string::npos);

    CacheLimits consecutive = limits(8);
    consecutive.positions = Positions::consecutive;
    Any<> strict{one_layer(), consecutive};
    CHECK(violation_of([&] {
              (void)strict.begin(Part{Position{0}, "#.#"});
          }).find("expected all, or limits with Positions::any")
          != std::string::npos);
    CHECK(strict.begin(Part{Position{0}, "###"}).has_value());

    auto pass = cache.begin(Part{Position{0}, "#.#"}).value();
    CHECK(violation_of([&] { pass.put(0, std::vector<float>(3), std::vector<float>(3)); }).find("for [2 tokens")
          != std::string::npos);
    CHECK(violation_of([&] { pass.commit(); }).find("was not put") != std::string::npos);
}

TEST_CASE("recurrent memories store every token of a batch") {
    RecurrentMemory<States<Sum>> memory{StateShape{1, {{1}}}, {.sequences = 2, .batch = 8}};
    CHECK(violation_of([&] {
              (void)memory.begin(Part{Position{0}, "#.#"});
          }).find("because a state depends on each")
          != std::string::npos);
    CHECK(memory.begin(Part{Position{0}, "###"}).has_value());
}

} // namespace test_stored
