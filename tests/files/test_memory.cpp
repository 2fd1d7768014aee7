// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How much memory saving and loading take.
#include "allocation_count.hpp"
#include "folder.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace test_memory {

namespace {

using namespace cellar;

constexpr std::int64_t mib = std::int64_t{1} << 20;

/// 16 MiB of keys and values in two layers, all of sequence 0.
Cache<StandardV<half>> full_cache() {
    constexpr std::int32_t batch = 1024;
    constexpr std::int32_t tokens = 8192;
    Cache<StandardV<half>> cache{{.layers = 2, .kv_heads = 2, .head_dim = 128},
                                 {.sequences = 1, .cells = tokens, .batch = batch}};
    std::vector<std::int32_t> positions(batch);
    const std::vector<std::int32_t> sequences(batch);
    for (std::int32_t first = 0; first < tokens; first += batch) {
        const std::vector<half> rows(std::size_t{batch} * 256, half{static_cast<float>(first)});
        std::iota(positions.begin(), positions.end(), first);
        auto pass = cache.begin({positions, sequences}).value();
        for (int layer = 0; layer < 2; ++layer) pass.put(layer, rows, rows);
        pass.commit();
    }
    return cache;
}

/// The bytes that f allocates, freed or not.
template <class F>
std::int64_t bytes_of(F f) {
    allocated_bytes = 0;
    counting = true;
    f();
    counting = false;
    return allocated_bytes;
}

} // namespace

TEST_CASE("saving takes a buffer for each array and one of the writer, loading the snapshot and one buffer") {
    if (!installed) CELLAR_SKIP("allocations cannot be counted here");
    const Folder folder;
    const auto path = folder.path / "f";
    auto cache = full_cache();
    const std::int64_t lists = 8192 * 8; // a position and a cell for each token
    const std::int64_t saving = bytes_of([&] { REQUIRE(save(path, cache, Sequence{0}, {.write = {.sync = false}})); });
    const std::int64_t swapped = std::endian::native == std::endian::big ? 16 * mib : 0; // the elements, piece by piece
    CHECK(saving < 7 * mib + 4 * lists + swapped);
    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        auto to = full_cache();
        std::int64_t held = 0;
        const std::int64_t loading = bytes_of([&] {
            const auto snapshot = load(path, to, {.read = {.access = access}});
            REQUIRE(snapshot);
            held = snapshot->bytes();
        });
        CHECK(held == 16 * mib);
        CHECK(loading >= held);
        CHECK(loading < held + mib / 2 + 4 * lists);
    }
}

TEST_CASE("a snapshot of many pieces is converted to another element type, and copied to the same one") {
    const Folder folder;
    const auto path = folder.path / "f";
    auto cache = full_cache();
    REQUIRE(save(path, cache, Sequence{0}, {.write = {.sync = false}}));
    const auto check = [&](auto to) {
        REQUIRE(load(path, to, Sequence{0}));
        const auto pass = to.reserve(1);
        bool equal = true;
        to.visit_cells(Sequence{0}, [&](Position position, Cell cell, std::int32_t count) {
            for (std::int32_t i = 0; i < count; i += 100) {
                const auto expected = static_cast<float>((position.value + i) / 1024 * 1024);
                for (const int layer : {0, 1}) {
                    equal = equal && static_cast<float>(pass.keys(layer)(cell + i, 0, 0)) == expected;
                    equal = equal && static_cast<float>(pass.values(layer)(cell + i, 1, 127)) == expected;
                }
            }
        });
        CHECK(to.tokens(Sequence{0}) == 8192);
        CHECK(equal);
    };
    const CacheLimits limits{.sequences = 1, .cells = 8192, .batch = 1};
    check(Cache<StandardV<half>>{{.layers = 2, .kv_heads = 2, .head_dim = 128}, limits});
    check(Cache<StandardV<float>>{{.layers = 2, .kv_heads = 2, .head_dim = 128}, limits});
    check(Cache<PermutedV<bf16>>{{.layers = 2, .kv_heads = 2, .head_dim = 128}, limits});
}

} // namespace test_memory
