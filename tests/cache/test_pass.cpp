// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace test_pass {

using namespace cellar;
using numbers::feed;
using numbers::Numbers;
using numbers::prompt;
using numbers::Values;

namespace {

const CacheLimits limits{.sequences = 2, .capacity = 8, .batch = 8};

} // namespace

TEST_CASE("rows can be views of any strides, spans or vectors, of the stored element or float") {
    Cache<StandardV<half>> cache{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 3, .value_dim = 1}, limits};
    auto pass = numbers::begin(cache, prompt(0, 0, {0, 0}));
    REQUIRE(pass);
    const auto key = [&](int token, int head, int d) { return static_cast<float>(pass->keys(0)(token, head, d)); };
    const auto value = [&](int token, int head) { return static_cast<float>(pass->values(0)(token, head, 0)); };

    const std::vector<float> k{0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112};
    const std::vector<float> v{5, 6, 7, 8};
    pass->put(0, k, v);
    CHECK(key(0, 1, 2) == 12);
    CHECK(key(1, 0, 1) == 101);
    CHECK(value(1, 0) == 7);

    std::vector<half> halves;
    for (const float x : k) halves.push_back(half{x + 1});
    pass->put(0, std::span<const half>{halves}, std::span<const float>{v});
    CHECK(key(0, 1, 2) == 13);
    CHECK(key(1, 1, 0) == 111);

    // [heads, dim, tokens] and [tokens, heads], both with negative strides.
    const std::vector<float> turned{0, 100, 1, 101, 2, 102, 10, 110, 11, 111, 12, 112};
    const StridedView<const float, 3> keys{turned.data(), {2, 2, 3}, {1, 6, 2}};
    const StridedView<const float, 3> values{v.data() + 3, {2, 2, 1}, {-2, -1, 1}};
    pass->put(0, keys, values);
    CHECK(key(0, 1, 2) == 12);
    CHECK(key(1, 0, 1) == 101);
    CHECK(value(0, 0) == 8);
    CHECK(value(1, 1) == 5);
}

TEST_CASE("histories of Blocked begin and end with whole blocks") {
    using Layout = Blocked<float, 4>;
    const CacheLimits small{.sequences = 2, .cells = 20, .batch = 8, .padding = 6, .placement = Placement::scattered};
    Cache<Layout> cache{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 1, .value_dim = 3}, small};
    CHECK(cache.limits().padding == 12);
    CHECK(cache.statistics().cells == 24);
    CHECK(cache.bytes() == 24 * 2 * (1 + 3) * 4);
    CHECK(cache.bytes()
          == Cache<Layout>::bytes_for({.layers = 1, .kv_heads = 2, .head_dim = 1, .value_dim = 3}, small).data);
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7}));
    feed(cache, prompt(1, 0, {11, 12, 13, 14, 15, 16, 17}));
    auto pass = numbers::begin(cache, prompt(1, 7, {18}));
    numbers::put(*pass, cache.shape(), prompt(1, 7, {18}));
    CHECK(pass->history() == CellRange{0, 24});
    const auto keys = pass->keys(0);
    const auto blocks = keys.whole_blocks();
    CHECK(blocks.extent(0) == 6);
    int cell = 0; // seven tokens of one sequence, then eight of the other
    for (const int number : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18}) {
        CHECK(&blocks(cell / 4, 1, cell % 4, 0) == &keys(cell, 1, 0));
        CHECK(&keys.rows(cell / 4, 1)(cell % 4, 0) == &keys(cell, 1, 0));
        CHECK(keys(cell, 1, 0) == keys(cell, 0, 0));
        CHECK(keys(cell, 0, 0) == static_cast<float>(number));
        ++cell;
    }
}

TEST_CASE("a padding that has no common multiple with the blocks is a violation") {
    CHECK(
        violation_of([] {
            static_cast<void>(Cache<Blocked<float>>{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                                    {.capacity = 8, .padding = (1 << 30) - 1}});
        })
        == "limits: a padding of 1073741823 and blocks of 64 cells, expected a common multiple of at most 1073741824");
}

TEST_CASE("values of PermutedV are indexed (cell, head, dim), with stride 1 along the cells") {
    Cache<PermutedV<float>> cache{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 1, .value_dim = 3}, limits};
    auto pass = numbers::begin(cache, prompt(0, 0, {0, 0}));
    pass->put(0, std::vector<float>{1, 2, 3, 4}, std::vector<float>{0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112});
    const auto [keys, values, mask] = pass->get(0);
    CHECK(keys.extent(0) == 2);
    CHECK(values.extent(0) == 2);
    CHECK(values.extent(1) == 2);
    CHECK(values.extent(2) == 3);
    CHECK(values(0, 1, 2) == 12);
    CHECK(values(1, 0, 1) == 101);
    CHECK(values.stride(0) == 1);
    static_assert(std::same_as<decltype(cache)::layout_type::value_mapping, cellar::HeadsDimsCells>);
}

TEST_CASE("rows of a wrong extent, or for a wrong layer, are a violation") {
    Cache<> cache{CacheShape{.each_layer = {{2, 3, 1}, {2, 3, 1, 0}, {1, 4, 0}}}, limits};
    auto pass = numbers::begin(cache, prompt(0, 0, {0, 0}));
    const std::vector<float> k(12);
    const std::vector<float> v(4);
    const std::vector<float> wrong(11);
    const StridedView<const float, 3> view = contiguous_view(k.data(), 2, 3, 2);
    CHECK(violation_of([&] { pass->put(0, wrong, v); })
          == "put: the keys of layer 0 are 11 elements, expected 12 for [2 tokens, 2 heads, 3]");
    CHECK(violation_of([&] { pass->put(0, k, k); })
          == "put: the values of layer 0 are 12 elements, expected 4 for [2 tokens, 2 heads, 1]");
    CHECK(violation_of([&] { pass->put(0, view, v); })
          == "put: the keys of layer 0 are [2, 3, 2], expected [2 tokens, 2 heads, 3]");
    CHECK(violation_of([&] { pass->put(1, k, v); })
          == "put: layer 1 shares the memory of layer 0, expected a put to that one");
    CHECK(violation_of([&] { pass->put(3, k, v); }) == "put: layer 3, expected 0 to 2");
    CHECK(violation_of([&] { pass->put(-1, k, v); }) == "put: layer -1, expected 0 to 2");
    CHECK(violation_of([&] { static_cast<void>(pass->get(3)); }) == "keys: layer 3, expected 0 to 2");
    pass->put(2, std::vector<float>(8), std::vector<float>{}); // keys only
    CHECK(violation_of([&] { pass->put(2, std::vector<float>(8), v); })
          == "put: the values of layer 2 are 4 elements, expected 0 for [2 tokens, 1 heads, 0]");
}

TEST_CASE("masks of float, half and bool agree, in any order within one pass") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.sequences = 2, .capacity = 30, .batch = 20}};
    feed(cache, prompt(1, 0, {1, 2, 3}));
    auto pass = numbers::begin(cache, prompt(0, 0, Values(9)) + prompt(1, 3, Values(9)));
    const auto check = [&] {
        std::vector<bool> expected;
        const auto floats = pass->mask<float>();
        for (int i = 0; i < floats.extent(0); ++i)
            for (int c = 0; c < floats.extent(1); ++c) {
                const float x = floats(i, c);
                CHECK((x == 0 || (std::isinf(x) && x < 0)));
                expected.push_back(x == 0);
            }
        const auto bools = pass->mask<bool>();
        for (int i = 0; i < bools.extent(0); ++i)
            for (int c = 0; c < bools.extent(1); ++c)
                CHECK(bools(i, c) == expected[static_cast<std::size_t>(i * bools.extent(1) + c)]);
        const auto halves = pass->mask<half>();
        for (int i = 0; i < halves.extent(0); ++i)
            for (int c = 0; c < halves.extent(1); ++c)
                CHECK(halves(i, c).bits == (expected[static_cast<std::size_t>(i * halves.extent(1) + c)] ? 0 : 0xFC00));
    };
    check();
    check();
}

TEST_CASE("a mask is written into memory of the program's own, as wide as it likes") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 2, .capacity = 9, .batch = 4, .placement = Placement::scattered}};
    feed(cache, prompt(0, 0, {1, 2}));
    auto pass = numbers::begin(cache, prompt(0, 2, {3, 4}));
    REQUIRE(pass->history() == CellRange{0, 4});
    std::vector<float> mask(2 * 8, 7.0F);
    pass->mask_into(StridedView<float, 2>{mask.data(), {2, 6}, {8, 1}});
    const float hidden = -std::numeric_limits<float>::infinity();
    CHECK(mask
          == Values{0, 0, 0, hidden, hidden, hidden, 7, 7, //
                    0, 0, 0, 0, hidden, hidden, 7, 7});
    pass->drop();
    auto reserved = cache.reserve(1);
    std::vector<half> all(20, half{3.0F});
    reserved.mask_into(contiguous_view(all.data(), 1, 20));
    for (std::size_t c = 0; c < 20; ++c) CHECK(all[c].bits == (c < 18 ? 0 : 0xFC00));
}

TEST_CASE("a mask that does not fit is a violation, and is not written") {
    numbers::Cache<> cache{numbers::small, {.sequences = 1, .capacity = 9, .batch = 4}};
    auto pass = numbers::begin(cache, prompt(0, 0, {1, 2}));
    std::vector<float> mask(16, 7.0F);
    const auto into = [&](float* data, std::int64_t tokens, std::int64_t columns, std::int64_t stride,
                          std::int64_t step) {
        return violation_of([&] { pass->mask_into(StridedView<float, 2>{data, {tokens, columns}, {stride, step}}); });
    };
    CHECK(into(mask.data(), 3, 2, 2, 1) == "mask_into: the mask is [3, 2], expected [2 tokens, 2 cells or more]");
    CHECK(into(mask.data(), 2, 1, 2, 1) == "mask_into: the mask is [2, 1], expected [2 tokens, 2 cells or more]");
    CHECK(into(mask.data(), 2, 4, 3, 1) == "mask_into: the mask has strides [3, 1], expected [4 or more, 1]");
    CHECK(into(mask.data(), 2, 2, 4, 2) == "mask_into: the mask has strides [4, 2], expected [2 or more, 1]");
    CHECK(into(nullptr, 2, 2, 2, 1) == "mask_into: the mask is a null pointer, expected [2 tokens, 2]");
    CHECK(mask == Values(16, 7.0F));
    CHECK(into(mask.data(), 2, 2, 2, 1) == "none");
    pass->drop();
    CHECK(into(mask.data(), 2, 2, 2, 1)
          == "the pass is over, expected one that was not committed, dropped or moved from");
}

TEST_CASE("the cells of a pass are copied to 64-bit integers") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 80, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2}));
    auto pass = numbers::begin(cache, prompt(0, 2, {3}) + prompt(1, 0, {4, 5}));
    std::vector<std::int64_t> cells(3);
    pass->copy_cells(cells);
    CHECK(std::equal(cells.begin(), cells.end(), pass->cells().begin(), pass->cells().end()));
    CHECK(cells == std::vector<std::int64_t>{2, 64, 65});
    std::vector<std::int64_t> other(2, -1);
    CHECK(violation_of([&] { pass->copy_cells(other); }) == "copy_cells: room for 2 cells, expected 3");
    CHECK(other == std::vector<std::int64_t>{-1, -1});
    pass->drop();
    cache.reserve(2).copy_cells({});
}

TEST_CASE("the history starts and ends at multiples of the padding") {
    numbers::Cache<> cache{
        numbers::small, {.sequences = 2, .capacity = 9, .batch = 9, .padding = 8, .placement = Placement::scattered}};
    CHECK(cache.cells() == 24);
    feed(cache, prompt(0, 0, Values(9)));
    CHECK(numbers::begin(cache, prompt(1, 0, {1})).value().history() == CellRange{8, 8});
    CHECK(numbers::begin(cache, prompt(0, 9, {1})).value().history() == CellRange{0, 16});
    feed(cache, prompt(1, 0, Values(7)));
    auto pass = numbers::begin(cache, prompt(1, 7, {1}));
    CHECK(pass->history() == CellRange{8, 16});
    numbers::put(*pass, cache.shape(), prompt(1, 7, {1}));
    CHECK(pass->mask().extent(1) == 16);
    CHECK(pass->keys(0).extent(0) == 16);
}

TEST_CASE("a padding need not be a power of two") {
    numbers::Cache<> cache{
        numbers::small, {.sequences = 2, .capacity = 9, .batch = 9, .padding = 6, .placement = Placement::scattered}};
    CHECK(cache.cells() == 18);
    feed(cache, prompt(0, 0, Values(9)));
    CHECK(numbers::begin(cache, prompt(0, 9, {1})).value().history() == CellRange{0, 12});
    feed(cache, prompt(1, 0, Values(3)));
    CHECK(numbers::begin(cache, prompt(1, 3, {1})).value().history() == CellRange{6, 12}); // sees cells 9 to 12
}

TEST_CASE("a history may start at coarser steps than it ends, and the cells in front are hidden") {
    const auto made = [](std::int32_t start_padding) {
        numbers::Cache<> cache{numbers::small,
                               {.sequences = 2,
                                .capacity = 30,
                                .batch = 20,
                                .padding = 4,
                                .start_padding = start_padding,
                                .placement = Placement::scattered}};
        feed(cache, prompt(0, 0, Values(20)));
        return cache;
    };
    const auto check = [&](std::int32_t start_padding, std::int32_t resolved, CellRange history) {
        CAPTURE(start_padding);
        auto cache = made(start_padding);
        CHECK(cache.limits().start_padding == resolved);
        auto pass = numbers::begin(cache, prompt(1, 0, {7})); // sees cell 20 alone
        CHECK(pass->history() == history);
        numbers::put(*pass, cache.shape(), prompt(1, 0, {7}));
        CHECK(pass->keys(0).extent(0) == history.count);
        CHECK(numbers::sees(cache, *pass, 0) == Values{7});
        const auto mask = pass->mask<bool>();
        REQUIRE(mask.extent(1) == history.count);
        for (int c = 0; c < history.count; ++c) CHECK(mask(0, c) == (history.first + c == 20));
        pass->drop();
        CHECK(cache.begin({}).value().history() == CellRange{});
    };
    check(1, 4, {20, 4});
    check(4, 4, {20, 4});
    check(3, 12, {12, 12});
    check(16, 16, {16, 8});
    check(10, 20, {20, 4});
    check(7, 28, {0, 24});
    check(32, 32, {0, 24});
    check(1 << 30, 1 << 30, {0, 24});
    check(0, 0, {0, 24});
    CHECK(violation_of([&] { made(-1); }) == "limits: a start padding of -1, expected 0 to 1073741824");
    CHECK(violation_of([&] { made((1 << 30) - 1); })
          == "limits: a padding of 4 and a start padding of 1073741823, expected a common multiple of at most "
             "1073741824");
}

TEST_CASE("the history is the smallest range that holds what the batch sees") {
    numbers::Cache<SlidingWindow<2>> cache{
        numbers::small,
        {.sequences = 2, .capacity = 100, .batch = 10, .placement = Placement::scattered, .positions = Positions::any}};
    feed(cache, prompt(0, 0, Values(3)) + prompt(1, 0, Values(3)));
    // Cells 0 to 5 are in use; a new token gets cell 6.
    CHECK(numbers::begin(cache, prompt(0, 3, {1})).value().history() == CellRange{2, 5});
    CHECK(numbers::begin(cache, prompt(1, 3, {1})).value().history() == CellRange{5, 2});
    CHECK(numbers::begin(cache, prompt(1, 50, {1})).value().history() == CellRange{6, 1});
    CHECK(numbers::begin(cache, {{1, 50, 1}, {0, 0, 2}}).value().history() == CellRange{0, 8});
}

TEST_CASE("the history holds what every token of a batch sees, in whatever order the tokens come") {
    numbers::Cache<> cache{
        numbers::small,
        {.sequences = 2, .capacity = 9, .batch = 4, .placement = Placement::scattered, .positions = Positions::any}};
    feed(cache, prompt(1, 0, {1, 2}) + prompt(0, 0, {3, 4}));
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    // Cells 2 and 3 are in use; the new tokens get cells 0 and 1. Only the token at position 5 sees cell 0.
    CHECK(numbers::begin(cache, {{0, 5, 1}, {0, 3, 2}}).value().history() == CellRange{0, 4});
}

TEST_CASE("a dropped pass never happened") {
    numbers::Cache<SlidingWindow<3>> cache{numbers::small, {.sequences = 2, .capacity = 20, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5}) + prompt(1, 0, {6, 7}));
    const auto before = cache.statistics();
    const auto contents = numbers::held(cache, 0);
    for (const bool explicitly : {true, false}) {
        const Numbers tokens = prompt(0, 5, {8, 9, 10}) + prompt(1, 2, {11});
        auto pass = numbers::begin(cache, tokens);
        numbers::put(*pass, cache.shape(), tokens);
        if (explicitly) pass->drop();
    }
    CHECK(cache.statistics() == before);
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{1}, Position{4}});
    CHECK(numbers::held(cache, 0) == contents);
    CHECK(numbers::values(cache, 1) == Values{6, 7});
}

TEST_CASE("a pass that is over cannot be used, but may be dropped again") {
    numbers::Cache<> cache{numbers::small, limits};
    auto pass = numbers::begin(cache, prompt(0, 0, {1}));
    numbers::put(*pass, cache.shape(), prompt(0, 0, {1}));
    pass->commit();
    const std::string over = "the pass is over, expected one that was not committed, dropped or moved from";
    CHECK(violation_of([&] { pass->put(0, Values(2), Values(1)); }) == over);
    CHECK(violation_of([&] { static_cast<void>(pass->get(0)); }) == over);
    CHECK(violation_of([&] { static_cast<void>(pass->mask<bool>()); }) == over);
    CHECK(violation_of([&] { static_cast<void>(pass->cells()); }) == over);
    CHECK(violation_of([&] { pass->commit(); }) == over);
    pass->drop();
    CHECK(numbers::values(cache, 0) == Values{1});
}

TEST_CASE("a pass may move, and its cache too") {
    numbers::Cache<> first{numbers::small, limits};
    const Numbers tokens = prompt(0, 0, {1, 2});
    auto begun = numbers::begin(first, tokens);
    const float* const memory = begun->in_place(0).keys.data_handle();
    auto pass = std::move(*begun);
    CHECK(violation_of([&] { begun->commit(); })
          == "the pass is over, expected one that was not committed, dropped or moved from");
    numbers::Cache<> cache{std::move(first)};
    numbers::put(pass, cache.shape(), tokens);
    CHECK(pass.keys(0).data_handle() == memory);
    pass.commit();
    CHECK(numbers::values(cache, 0) == Values{1, 2});
    numbers::Cache<> assigned{numbers::small, limits};
    assigned = std::move(cache);
    CHECK(numbers::values(assigned, 0) == Values{1, 2});
}

TEST_CASE("addresses of keys and values never change") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    const auto memory = [&] {
        const auto pass = cache.reserve(1);
        return std::pair{pass.keys(0).data_handle(), pass.values(0).data_handle()};
    };
    const auto before = memory();
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{2}));
    cache.defragment();
    CHECK(memory() == before);
}

TEST_CASE("a reserved pass sees all cells and stores nothing") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    const std::string before = numbers::portrait(cache);
    {
        auto pass = cache.reserve(4);
        CHECK(pass.tokens() == 4);
        CHECK(pass.history() == CellRange{0, 16});
        CHECK(pass.cells().empty());
        numbers::put(pass, cache.shape(), prompt(1, 0, {9, 9, 9, 9}));
        CHECK(violation_of([&] { pass.put(0, Values(3), Values(4)); })
              == "put: the keys of layer 0 are 3 elements, expected 8 for [4 tokens, 1 heads, 2]");
        const auto [keys, values, mask] = pass.get(0);
        CHECK(keys.extent(0) == 16);
        CHECK(values.extent(0) == 16);
        CHECK(mask.extent(0) == 4);
        CHECK(mask.extent(1) == 16);
        for (int i = 0; i < 4; ++i)
            for (int c = 0; c < 16; ++c) CHECK(mask(i, c) == 0);
        pass.commit();
    }
    CHECK(numbers::portrait(cache) == before);
    feed(cache, prompt(0, 4, Values(4)));
    feed(cache, prompt(0, 8, Values(4)));
    feed(cache, prompt(0, 12, Values(4)));
    CHECK(cache.reserve(4).history() == CellRange{0, 16}); // even if no cell is free
    CHECK(violation_of([&] { static_cast<void>(cache.reserve(5)); }) == "reserve: 5 tokens, expected 0 to 4");
    CHECK(violation_of([&] { static_cast<void>(cache.reserve(-1)); }) == "reserve: -1 tokens, expected 0 to 4");
}

TEST_CASE("committing a reserved pass leaves the sequences of the last batch alone") {
    using Window = SlidingWindow<4>;
    numbers::Cache<Window> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 4}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end)); // has no last token now
    cache.reserve(1).commit();
    CHECK(cache.tokens(Sequence{0}) == 0);
    feed(cache, prompt(0, 0, {5, 6}));
    CHECK(numbers::values(cache, 0) == Values{5, 6});
}

TEST_CASE("after reserve, masks keep their address") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 4}};
    const void* const mask = [&] {
        auto pass = cache.reserve(4);
        return pass.mask().data_handle();
    }();
    for (int p = 0; p < 8; p += 4) {
        auto pass = numbers::begin(cache, prompt(0, p, Values(4)));
        CHECK(pass->mask<float>().data_handle() == mask);
        CHECK(static_cast<const void*>(pass->mask<bool>().data_handle()) == mask);
        pass->put(0, Values(8), Values(4));
        pass->commit();
    }
}

TEST_CASE("visit passes on the pass and the layer") {
    numbers::Cache<> cache{numbers::small, {.capacity = 6, .batch = 6}};
    auto pass = numbers::begin(cache, prompt(0, 0, {1, 2}));
    const int found = pass->visit(0, [&](auto& own, int layer) { return &own == &*pass ? layer + 10 : -1; });
    CHECK(found == 10);
    CHECK(violation_of([&] { pass->visit(99, [](auto&, int) {}); }).starts_with("visit: layer 99, expected"));
}

} // namespace test_pass
