// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The rows of a layer outside of a pass, and the generation of their addresses.
#include "../formats.hpp"
#include "../violations.hpp"
#include "numbers.hpp"
#include <cellar/backend/eigen.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_rows {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;

namespace {

const CacheLimits limits{.sequences = 2, .capacity = 70, .batch = 8};
const CacheShape shape{.each_layer = std::vector<LayerShape>{
                           {2, 3, 2}, {1, 5, 0}, {2, 3, 2, 0}}}; // the third layer shares the memory of the first

/// 1, 2, 3, ...
Values counted(std::size_t n, float first) {
    Values list;
    for (std::size_t i = 0; i < n; ++i) list.push_back(first + static_cast<float>(i));
    return list;
}

/// Puts different values into all rows of all layers.
template <class Pass>
void put_counted(Pass& pass) {
    const auto n = static_cast<std::size_t>(pass.tokens());
    pass.put(0, counted(n * 6, 1), counted(n * 4, 100));
    pass.put(1, counted(n * 5, 50), Values{});
}

/// True if rows of all cells are those of a history.
template <class Rows, class Own>
bool agree(const Rows& rows, const Own& own, CellRange history) {
    if (rows.extent(1) != own.extent(1) || rows.extent(2) != own.extent(2) || own.extent(0) != history.count)
        return false;
    for (int c = 0; c < history.count; ++c)
        for (int head = 0; head < own.extent(1); ++head)
            for (int d = 0; d < own.extent(2); ++d)
                if (&rows(history.first + c, head, d) != &own(c, head, d)) return false;
    return true;
}

bool is_aligned(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 64 == 0;
}

template <class Cache>
std::pair<std::uint64_t, const void*> where(const Cache& cache) {
    return {cache.generation(), cache.rows(0).keys.data_handle()};
}

} // namespace

TEST_CASE_TEMPLATE("the rows of a layer are those that passes read", Layout, StandardV<float>, StandardV<half, float>,
                   PermutedV<float>, Blocked<bfloat16>) {
    Cache<Layout> cache{shape, limits};
    const Cache<Layout>& constant = cache;
    const auto before = constant.rows(0);
    CHECK(before.keys.extent(0) == cache.cells());
    CHECK(static_cast<float>(before.keys(3, 1, 2)) == 0);
    {
        auto first = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 8}).value();
        put_counted(first);
        first.commit();
    }
    auto pass = cache.begin(BatchBuilder{Sequence{1}, Position{0}, 3}).value();
    put_counted(pass);
    for (int layer = 0; layer < 3; ++layer) {
        CAPTURE(layer);
        CHECK(agree(constant.rows(layer).keys, pass.keys(layer), pass.history()));
        CHECK(agree(constant.rows(layer).values, pass.values(layer), pass.history()));
        CHECK(agree(cache.rows(layer).keys, pass.keys(layer), pass.history()));
        CHECK(constant.rows(layer).keys.extent(0) == cache.cells());
    }
    CHECK(constant.rows(1).values.extent(2) == 0);
    CHECK(static_cast<float>(before.keys(pass.cells()[2], 1, 2)) == 18);
    pass.commit();
    CHECK(agree(constant.rows(0).keys, before.keys, {0, cache.cells()}));
}

TEST_CASE("rows of a format with scales have both planes") {
    Cache<StandardV<cellar_test::ScaledHeads>> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.capacity = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    const auto rows = cache.rows(0);
    CHECK(&rows.keys.units(1, 1, 2) == &pass.in_place(0).keys.units(1, 1, 2));
    CHECK(&rows.values.scales(1, 1, 0) == &pass.in_place(0).values.scales(1, 1, 0));
}

TEST_CASE("what is written to the rows of a pass's cells is stored once it is marked as put") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 2}, limits};
    const auto rows = cache.rows(0); // before the pass
    static_assert(!std::is_const_v<decltype(rows.keys)::element_type>);
    static_assert(std::is_const_v<decltype(std::as_const(cache).rows(0).values)::element_type>);
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    for (const Cell cell : pass.cells()) {
        rows.keys(cell, 0, 1) = static_cast<float>(10 + cell);
        rows.values(cell, 0, 0) = static_cast<float>(20 + cell);
    }
    pass.mark_put(0);
    pass.commit();
    const auto all_cells = cache.reserve(1);
    CHECK(all_cells.keys(0)(1, 0, 1) == 11);
    CHECK(all_cells.values(0)(0, 0, 0) == 20);
}

TEST_CASE_TEMPLATE("rows begin at multiples of 64 bytes", Backend, HostBackend, EigenBackend) {
    const std::vector<LayerShape> odd{{1, 1, 1}, {3, 5, 7}, {1, 129, 0}, {2, 3, 2}, {8, 1024, 1024}};
    Cache<PermutedV<half>, FullCausal, DisabledShift, Backend> cache{CacheShape{.each_layer = odd},
                                                                     {.capacity = 13, .batch = 1}};
    for (int layer = 0; layer < 5; ++layer) {
        CAPTURE(layer);
        CHECK(is_aligned(cache.rows(layer).keys.data_handle()));
        CHECK(is_aligned(cache.rows(layer).values.data_handle()));
    }
    Cache<StandardV<float>, FullCausal, DisabledShift, Backend> grown{
        {.layers = 2, .kv_heads = 1, .head_dim = 3}, {.capacity = 100, .initial_cells = 3, .batch = 9}};
    auto pass = grown.begin(BatchBuilder{Sequence{0}, Position{0}, 9}).value();
    CHECK(grown.generation() == 1);
    CHECK(is_aligned(grown.rows(1).keys.data_handle()));
    CHECK(is_aligned(grown.rows(1).values.data_handle()));
}

TEST_CASE("rows in memory of a program's own lie there") {
    std::array<float, 2 * 8> keys{};
    std::array<float, 3 * 8> values{};
    const LayerMemory memory{.keys = {keys.data(), sizeof(keys)}, .values = {values.data(), sizeof(values)}};
    const Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 3}, {.capacity = 8}, {&memory, 1}};
    CHECK(cache.rows(0).keys.data_handle() == keys.data());
    CHECK(cache.rows(0).values.data_handle() == values.data());
    CHECK(cache.generation() == 0);
}

TEST_CASE("the generation stays where no address changes") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    const auto before = where(cache);
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{2}));
    auto snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    REQUIRE(cache.reload(snapshot));
    cache.defragment();
    CHECK(where(cache) == before);
    const numbers::Cache<> moved{std::move(cache)};
    CHECK(where(moved) == before);
    const std::string message = "the cache was moved from, expected one that was not";
    CHECK(violation_of([&] { cache.generation(); }) == message);
    CHECK(violation_of([&] { static_cast<void>(cache.rows(0)); }) == message);
}

TEST_CASE("the generation changes when a cache grows, and only then") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 100, .initial_cells = 8, .batch = 8}};
    std::uint64_t generation = cache.generation();
    std::int32_t allocated = 8;
    int changes = 0;
    for (int position = 0; position < 100; ++position) {
        feed(cache, prompt(0, position, {1}));
        const auto rows = std::as_const(cache).rows(0);
        const bool has_grown = cache.statistics().allocated != allocated;
        CHECK((cache.generation() != generation) == has_grown);
        CHECK(rows.keys.extent(0) == cache.statistics().allocated);
        CHECK(rows.values.extent(0) == cache.statistics().allocated);
        generation = cache.generation();
        allocated = cache.statistics().allocated;
        changes += has_grown ? 1 : 0;
    }
    CHECK(changes > 3);
}

TEST_CASE("a layer that a cache does not have has no rows") {
    const Cache<> cache{{.layers = 2, .kv_heads = 1, .head_dim = 1}, limits};
    CHECK(violation_of([&] { static_cast<void>(cache.rows(2)); }) == "rows: layer 2, expected 0 to 1");
    CHECK(violation_of([&] { static_cast<void>(cache.rows(-1)); }) == "rows: layer -1, expected 0 to 1");
}

TEST_CASE("an encoder memory has rows, too") {
    EncoderMemory<> memory{{.layers = 1, .kv_heads = 1, .head_dim = 2}, limits};
    auto pass = memory.write(Sequence{0}, Position{0}, 3).value();
    pass.put(0, Values{1, 2, 3, 4, 5, 6}, Values{7, 8, 9, 10, 11, 12});
    pass.commit();
    auto reading = memory.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    CHECK(agree(std::as_const(memory).rows(0).keys, reading.keys(0), reading.history()));
    CHECK(memory.rows(0).values(2, 0, 1) == 12);
    CHECK(memory.generation() == 0);
}

} // namespace test_rows
