// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "formats.hpp"
#include "violations.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/cache/sizes.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

// Where the memory of keys and values comes from: the program's own, and when the operating system commits it.

namespace test_memory {

using namespace cellar;
using cellar_test::BlocksOf32;
using cellar_test::ScaledHeads;

namespace {

constexpr int cells = 64;
constexpr CacheLimits small{.sequences = 2, .cells = cells, .batch = 8};

template <class T>
RowsMemory rows_in(std::vector<T>& memory) {
    return {memory.data(), std::ssize(memory) * std::int64_t{sizeof(T)}};
}

/// Keys [cells, 2, 4] and values [2, 4, cells], full of what is no zero.
struct Own {
    std::vector<half> keys = std::vector<half>(cells * 8, half{5.0F});
    std::vector<float> values = std::vector<float>(cells * 8, 6.0F);

    LayerMemory memory() { return {.keys = rows_in(keys), .values = rows_in(values)}; }
};

using Layout = PermutedV<half, float>;
template <class Backend>
using CacheOn = Cache<Layout, FullCausal, RopeShift<Neox>, Backend>;

template <class Backend = HostBackend>
CacheOn<Backend> cache_in(const std::vector<LayerMemory>& memory, CacheLimits limits = small) {
    return {
        CacheShape{.each_layer = {{2, 4, 4}, {2, 4, 4, 0}}}, limits, memory, {}, RopeShift<Neox>{rope_frequencies(4)}};
}

template <class Cache>
void feed(Cache& cache, Sequence s, int tokens) {
    auto pass = cache.begin(BatchBuilder{s, cache.next(s), tokens}).value();
    std::vector<float> rows(static_cast<std::size_t>(tokens) * 8, 1.0F);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 8 + i / 8 + 1);
    pass.put(0, rows, rows);
    pass.commit();
}

} // namespace

TEST_CASE_TEMPLATE("a cache works in memory that it is given", Backend, HostBackend, EigenBackend) {
    Own own;
    {
        auto cache = cache_in<Backend>({own.memory(), {}});
        CHECK(static_cast<float>(own.keys[0]) == 0);
        CHECK(own.values[cells * 8 - 1] == 0);
        CHECK(cache.bytes() == cells * 8 * 2 + cells * 8 * 4);
        feed(cache, Sequence{0}, 4);
        {
            const auto pass = cache.reserve(1);
            CHECK(pass.keys(1).data_handle() == own.keys.data());
        }
        CHECK(static_cast<float>(own.keys[3 * 8 + 2]) == 6); // token 3, element 2
        CHECK(own.values[2 * cells + 3] == 6);
        REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
        REQUIRE(cache.remove(Sequence{0}, Position{1}, Position{2}));
        auto snapshot = cache.snapshot(Sequence{0}).value();
        cache.offload(snapshot);
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        REQUIRE(cache.reload(snapshot));
        REQUIRE(cache.restore(Sequence{0}, snapshot));
        cache.defragment();
        CHECK(cache.tokens(Sequence{0}) == 3);
        CHECK(cache.tokens(Sequence{1}) == 2);
        auto moved = std::move(cache);
        const auto pass = moved.reserve(1);
        CHECK(pass.values(0).data_handle() == own.values.data());
    }
    CHECK(own.values[2 * cells] == 3); // it is not freed, and as it was left
}

TEST_CASE("units and scales lie in memory that the cache is given") {
    std::vector<ScaledHeads::unit> keys(cells * 64, 1);
    std::vector<ScaledHeads::scale> scales(cells, 1);
    std::vector<BlocksOf32::unit> values(cells * 2);
    const LayerMemory memory{.keys = rows_in(keys), .values = rows_in(values), .key_scales = rows_in(scales)};
    using Formats = StandardV<ScaledHeads, BlocksOf32>;
    CHECK(memory.keys.bytes + memory.values.bytes + memory.key_scales.bytes
          == layer_bytes<Formats>({1, 64, 64}, cells));
    Cache<Formats, FullCausal, UnrotatedShift> cache{
        {.layers = 1, .kv_heads = 1, .head_dim = 64}, {.cells = cells}, {&memory, 1}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    const std::vector<float> row(64, 254);
    pass.put(0, row, row);
    const auto cell = static_cast<std::size_t>(pass.cells()[0]);
    CHECK(keys[64 * cell] == 127);
    CHECK(scales[cell] == 2);
    CHECK(static_cast<float>(values[2 * cell].scale) == 2);
    pass.commit();
}

TEST_CASE("memory that does not fit is a violation") {
    Own own;
    const auto make = [&](LayerMemory first, CacheLimits limits = small) {
        return violation_of([&] { cache_in({first, {}}, limits); });
    };
    CHECK(make(own.memory()) == "none");
    LayerMemory memory = own.memory();
    memory.keys.bytes -= 1;
    CHECK(make(memory) == "memory: the keys of layer 0 have 1023 bytes, expected at least 1024 for 64 cells");
    memory = own.memory();
    memory.values.data = nullptr;
    CHECK(make(memory) == "memory: the values of layer 0 are a null pointer, expected 2048 bytes");
    memory = own.memory();
    memory.values.data = reinterpret_cast<std::byte*>(own.values.data()) + 2;
    CHECK(make(memory) == "memory: the values of layer 0 are not aligned, expected an address that is a multiple of 4");
    memory = own.memory();
    memory.keys.strides = {8, 4, 1};
    memory.values.strides = {1, 4 * cells, cells};
    CHECK(make(memory) == "none");
    memory.values.strides = {8, 4, 1};
    CHECK(make(memory)
          == "memory: the values of layer 0 have strides [8, 4, 1], expected [1, 256, 64], those of the layout");
    CHECK(make(own.memory(), {.cells = cells, .initial_cells = 1, .batch = 8})
          == "memory: CacheLimits::initial_cells is 1, expected 0, because memory that is given does not grow");
    CHECK(violation_of([&] { cache_in({own.memory()}); }) == "memory: of 1 layers, expected of all 2");
    CHECK(violation_of([&] { cache_in({}); }) == "memory: of 0 layers, expected of all 2");
}

TEST_CASE_TEMPLATE("keys and values of free cells are erased, and no others", Backend, HostBackend, EigenBackend) {
    Own own;
    auto cache = cache_in<Backend>({own.memory(), {}});
    feed(cache, Sequence{0}, 5);
    feed(cache, Sequence{1}, 3);
    auto kept = cache.snapshot(Sequence{0}, Position{0}, Position{2}).value();
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(violation_of([&] {
              auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
              cache.erase_free_cells();
          })
          == "erase_free_cells: a pass is open, expected it to be committed or dropped first");
    cache.erase_free_cells();
    std::vector<bool> in_use(cells);
    const auto use = [&](Position, Cell cell, std::int32_t n) { std::fill_n(in_use.begin() + cell, n, true); };
    cache.visit_cells(Sequence{1}, use);
    cache.visit_kept_cells(use);
    CHECK(std::count(in_use.begin(), in_use.end(), true) == 5);
    bool right = true;
    for (std::size_t cell = 0; cell < cells; ++cell)
        for (std::size_t i = 0; i < 8; ++i) {
            right = right && (static_cast<float>(own.keys[cell * 8 + i]) != 0) == in_use[cell];
            right = right && (own.values[i * cells + cell] != 0) == in_use[cell];
        }
    CHECK(right);
    CHECK(cache.tokens(Sequence{1}) == 3);
    CHECK(kept.tokens() == 2);
}

TEST_CASE("units and scales of free cells are erased, in formats of several planes and caches that have not grown") {
    Cache<StandardV<ScaledHeads, BlocksOf32>, FullCausal, UnrotatedShift> cache{
        {.layers = 1, .kv_heads = 1, .head_dim = 64}, {.cells = 128, .initial_cells = 64, .batch = 2}};
    {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
        const std::vector<float> rows(128, 254);
        pass.put(0, rows, rows);
        pass.commit();
    }
    REQUIRE(cache.remove(Sequence{0}, Position{1}, to_end));
    cache.erase_free_cells();
    const auto rows = std::as_const(cache).rows(0);
    CHECK(rows.keys.units(0, 0, 0) == 127);
    CHECK(rows.keys.units(1, 0, 0) == 0);
    CHECK(rows.keys.scales(0, 0, 0) == 2);
    CHECK(rows.keys.scales(1, 0, 0) == 0);
    CHECK(static_cast<float>(rows.values(0, 0, 0).scale) == 2);
    CHECK(static_cast<float>(rows.values(1, 0, 0).scale) == 0);
}

#if defined(__linux__)
namespace {

/// How many of the pages of this memory are committed, from 0 to 1.
template <class T, int Rank>
double committed(const StridedView<T, Rank>& rows) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(rows.pointer);
    const std::uintptr_t begin = address / page * page;
    const std::uintptr_t bytes = address + static_cast<std::uintptr_t>(rows.size()) * sizeof(T) - begin;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    REQUIRE(mincore(reinterpret_cast<void*>(begin), bytes, pages.data()) == 0);
    const auto n = std::count_if(pages.begin(), pages.end(), [](unsigned char bits) { return (bits & 1) != 0; });
    return static_cast<double>(n) / static_cast<double>(pages.size());
}

} // namespace

TEST_CASE("all memory of keys and values is committed at once with populate, and else when it is first written") {
    const CacheShape shape{.layers = 1,
                           .kv_heads = 8,
                           .head_dim = 128,
                           .value_dim = 8}; // keys of 4 KiB a cell: 96 MiB, which no allocator keeps for later
    const auto check = [&](bool populate, std::int32_t initial_cells) {
        CAPTURE(populate);
        CAPTURE(initial_cells);
        Cache<> cache{shape, {.cells = 24576, .initial_cells = initial_cells, .batch = 24576, .populate = populate}};
        if (initial_cells != 0) REQUIRE(cache.begin(BatchBuilder{Sequence{0}, Position{0}, 24576}));
        const auto rows = std::as_const(cache).rows(0);
        REQUIRE(rows.keys.extent(0) == 24576);
        CHECK((committed(rows.keys) == 1) == populate);
        if (populate) CHECK(committed(rows.values) == 1);
        CHECK(rows.keys(24575, 7, 127) == 0);
    };
    check(true, 0);
    check(false, 0);
    check(true, 64);
    check(false, 64);
}
#endif

} // namespace test_memory
