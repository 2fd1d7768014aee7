// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where device work has to wait: before the host reads, before memory that enqueued work uses is replaced or freed.
// `Late` fails a test that frees memory in use.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/offloading.hpp"
#include "backend/kokkos/passes.hpp"
#include "backend/kokkos/prefixes.hpp"
#include "backend/kokkos/states.hpp"
#include "backend/kokkos/tools.hpp"
#include "backend/memory.hpp"
#include "files/folder.hpp"
#include "shift/archetypes.hpp"
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test_fences {

using namespace cellar;
using cellar_test::LateDevice;
using cellar_test::LateDeviceOfSmallLimits;
using cellar_test::LateSpace;

namespace {

template <class Backend>
using RowsIn = cellar_test::Memory<Backend, CellsHeadsDims, float>;

using Cells = std::vector<Cell>;

} // namespace

TEST_CASE("fences: what copy_from_host has read may change, what copy_to_host has written is there") {
    LateDevice device;
    auto buffer = device.allocate<float>(4);
    std::vector<float> elements{1, 2, 3, 4};
    device.copy_from_host(std::span<const float>{elements}, buffer, 0);
    std::fill(elements.begin(), elements.end(), 0.0F);
    std::vector<float> read(4);
    device.copy_to_host(buffer, 0, std::span<float>{read});
    CHECK(read == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("fences: scratch memory waits for the moves that use it") {
    std::mt19937 random{1};
    RowsIn<LateDevice> device{40, 2, 8};
    RowsIn<HostBackend> host{40, 2, 8};
    device.fill(random);
    host.image = device.image;
    host.backend.copy_from_host(std::span<const float>{host.image}, host.buffer, 0);
    // The first one makes the list long enough for the others.
    for (const std::vector<Move>& moves : {std::vector<Move>{{0, 20, 20}}, {{0, 1, 2}}, {{10, 11, 20}}}) {
        device.move(moves);
        host.move(moves);
    }
    CHECK(cellar_test::same(device.read(), host.read()));
}

TEST_CASE("fences: a longer list waits for the kernels that read the old one") {
    std::mt19937 random{2};
    RowsIn<LateDevice> device{600, 1, 4};
    RowsIn<HostBackend> host{600, 1, 4};
    device.fill(random);
    host.image = device.image;
    host.backend.copy_from_host(std::span<const float>{host.image}, host.buffer, 0);
    const cellar_test::AddShift shift{2};
    for (const std::int32_t n : {3, 50, 400}) {
        device.rotate(shift, n % 2, {{n, n / 3, n}});
        host.rotate(shift, n % 2, {{n, n / 3, n}});
        device.move({{0, n, n / 2}});
        host.move({{0, n, n / 2}});
    }
    CHECK(cellar_test::same(device.read(), host.read()));
}

namespace {

/// Masks that grow: of one token, of two, of 32. Nothing waits for a mask before the next pass.
template <class T>
void check_growing_masks() {
    Cache<StandardV<float>, FullCausal, DisabledShift, LateDevice> cache{
        CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 100, .batch = 32}};
    int next = 0;
    for (const int tokens : {1, 2, 32}) {
        BatchBuilder batch;
        for (int i = 0; i < tokens; ++i) batch.add(Sequence{0}, Position{next++});
        auto pass = cache.begin(batch);
        REQUIRE(pass);
        const auto mask = pass->template mask<T>();
        pass->mark_put(0);
        pass->commit();
        if (tokens < 32) continue;
        cache.fence();
        const auto elements = cellar_test::elements_of<LateSpace>(mask);
        CHECK(elements.front() == static_cast<float>(detail::MaskValues<T>::visible));
        CHECK(elements[static_cast<std::size_t>(next - 1)] == static_cast<float>(detail::MaskValues<T>::hidden));
    }
}

} // namespace

TEST_CASE("fences: a larger mask waits for the kernels that write the old one") {
    check_growing_masks<float>();
    check_growing_masks<cellar::half>();
    check_growing_masks<bool>();
}

TEST_CASE("fences: masks of a pass are in order, and the last one stays") {
    Cache<StandardV<float>, FullCausal, DisabledShift, LateDevice> cache{
        CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 300, .batch = 100}};
    BatchBuilder batch;
    for (int i = 0; i < 100; ++i) batch.add(Sequence{0}, Position{i});
    auto pass = cache.begin(batch);
    REQUIRE(pass);
    static_cast<void>(pass->mask<float>());
    static_cast<void>(pass->mask<bool>());
    const auto mask = pass->mask<float>();
    cache.fence();
    const auto elements = cellar_test::elements_of<LateSpace>(mask);
    bool right = elements.size() == 100 * 100;
    for (std::size_t t = 0; right && t < 100; ++t)
        for (std::size_t c = 0; c < 100; ++c) right = right && (elements[100 * t + c] == 0) == (c <= t);
    CHECK(right);
}

namespace {

/// How often a call waits for staging memory.
template <class Call>
int waits_for_staging(Call call) {
    int waits = 0;
    const cellar_test::Listener listener{
        {.fence = [&](std::string_view name) { waits += name == "cellar: staging memory is used again"; }}};
    call();
    return waits;
}

/// Does work with another list each time, more than staging memory holds. How often it waits for that, with and
/// without fences of the program.
template <class Work>
std::pair<int, int> waits_of(Work work) {
    int waits[2] = {};
    for (const bool fenced : {false, true}) {
        RowsIn<LateDeviceOfSmallLimits> memory{100, 1, 8};
        std::mt19937 random{3};
        memory.fill(random);
        work(memory, 90); // the longest list: no list grows below
        memory.backend.fence();
        waits[fenced ? 1 : 0] = waits_for_staging([&] {
            for (int i = 0; i < 80; ++i) {
                work(memory, i);
                if (fenced) memory.backend.fence();
            }
        });
        memory.backend.fence();
    }
    return {waits[0], waits[1]};
}

} // namespace

TEST_CASE("fences: after a fence of the program, no list waits for its staging memory") {
    const std::vector<float> rows(20 * 8, 1.0F);
    std::vector<float> gathered(20 * 8);
    const auto cells = [](int i) {
        Cells list(20);
        for (std::size_t k = 0; k < 20; ++k) list[k] = static_cast<Cell>((static_cast<std::size_t>(i) + 3 * k) % 100);
        return list;
    };
    const auto check = [](const std::pair<int, int>& waits) {
        CHECK(waits.first > 5);
        CHECK(waits.second == 0);
    };
    check(waits_of([&](auto& memory, int i) {
        const Cells list = cells(i);
        memory.backend.scatter(memory.mapping, memory.buffer, std::span{list}, contiguous_view(rows.data(), 20, 1, 8));
    }));
    check(waits_of([&](auto& memory, int i) {
        const Cells list = cells(i);
        const auto& buffer = memory.buffer;
        memory.backend.gather(memory.mapping, buffer, std::span{list}, contiguous_view(gathered.data(), 20, 1, 8));
    }));
    check(waits_of([&](auto& memory, int i) { memory.move({{i, (i + 10) % 95, 5}}); }));
    check(waits_of([&](auto& memory, int i) {
        memory.rotate(cellar_test::AddShift{4}, 0, {{i, 8, 1}}); // other cells
    }));
    check(waits_of([&](auto& memory, int i) {
        memory.rotate(cellar_test::AddShift{4}, 0, {{0, 8, i + 1}}); // other factors
    }));
    check(waits_of([&](auto& memory, int i) {
        auto* const bytes = reinterpret_cast<std::byte*>(memory.buffer.data());
        const std::vector<SlotRows> tensors{{bytes, bytes + 1600, 16, 16, 16}};
        std::vector<SlotCopy> copies;
        for (int k = 0; k < 8; ++k) copies.push_back({(i + k) % 50, (i + k) % 90});
        memory.backend.copy_slots(tensors, copies);
    }));
    check(waits_of([&](auto& memory, int i) {
        const std::vector<ListEntry> entries{{0, i}, {1, i}, {2, i}, {3, i}, {4, i}};
        memory.backend.write_entries(std::span{entries}, reinterpret_cast<std::int32_t*>(memory.buffer.data()));
    }));
    check(waits_of([&](auto& memory, int i) {
        const std::vector<std::uint64_t> bits{1ULL << (i % 60), 2, 3, 4};
        memory.backend.write_mask(std::span{bits}, 0.0F, 1.0F, contiguous_view(memory.buffer.data(), 4, 64));
    }));
}

TEST_CASE("fences: memories and backends may be destroyed and replaced while work is in flight") {
    const std::vector<float> rows(4 * 8, 1.0F);
    const BatchBuilder batch = [] {
        BatchBuilder tokens;
        for (int i = 0; i < 4; ++i) tokens.add(Sequence{0}, Position{i});
        return tokens;
    }();
    {
        using Device = Cache<PermutedV<float>, FullCausal, DisabledShift, LateDevice>;
        const auto feed = [&](Device& cache) {
            auto pass = cache.begin(batch);
            REQUIRE(pass);
            pass->put(0, rows, rows);
            static_cast<void>(pass->mask());
            pass->commit();
        };
        const CacheLimits limits{.capacity = 8, .batch = 8};
        Device cache{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 8}, limits};
        feed(cache);
        cache = Device{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 8}, limits};
        feed(cache);
    }
    {
        RecurrentMemory<States<cellar_test::Wide>, LateDevice> states{StateShape{2, {{3, 5}}},
                                                                      {.sequences = 2, .batch = 8}};
        auto pass = states.begin(batch);
        REQUIRE(pass);
        static_cast<void>(pass->get<cellar_test::Wide>(0, pass->micro_batches()[0]));
        pass->drop();
    }
    {
        const cellar_test::Late space; // outlives the backends
        auto device = std::make_unique<LateDevice>(space);
        auto buffer = device->allocate<float>(64);
        const CellsHeadsDims mapping{8, 1, 8};
        const Cells cells{1, 2, 3, 4};
        device->scatter(mapping, buffer, std::span{cells}, contiguous_view(rows.data(), 4, 1, 8));
        LateDevice other;
        *device = std::move(other);
        device->scatter(mapping, buffer, std::span{cells}, contiguous_view(rows.data(), 4, 1, 8));
        const std::vector<Move> moves{{0, 1, 4}};
        device->move(mapping, buffer, moves);
        device.reset();
    }
    {
        const cellar_test::Late space;
        auto device = std::make_unique<LateDevice>(space);
        auto buffer = device->allocate<float>(64);
        auto* const bytes = reinterpret_cast<std::byte*>(buffer.data());
        const std::vector<SlotRows> tensors{{bytes, bytes + 128, 16, 16, 16}};
        const std::vector<SlotCopy> copies{{0, 1}};
        device->copy_slots(tensors, copies); // the only list that the backend has
        device.reset();
    }
}

TEST_CASE("fences: offloading to memory that the work reaches waits for nothing, and else for keys and for values") {
    for (const OffloadTo to : {OffloadTo::backend, OffloadTo::pinned_host, OffloadTo::host}) {
        cellar_test::OffloadedCaches<LateDevice, StandardV<float>> caches;
        caches.feed(0, 10);
        CellSnapshot snapshot = caches.device.snapshot(Sequence{0}).value();
        caches.device.offload(snapshot, OffloadTo::backend); // makes the list of cells long enough
        snapshot = caches.device.snapshot(Sequence{0}).value();
        caches.device.fence();
        int fences = 0;
        const cellar_test::Listener listener{{.fence = [&](std::string_view) { ++fences; }}};
        caches.device.offload(snapshot, to);
        CHECK(fences == (to == OffloadTo::host ? 2 : 0));
    }
}

TEST_CASE("fences: a tree that offloads to memory that the work reaches waits for nothing") {
    for (const OffloadTo to : {OffloadTo::backend, OffloadTo::pinned_host, OffloadTo::host}) {
        cellar_test::OffloadedTrees<LateDevice, StandardV<float>> trees{to, 1000};
        const auto list = [](int first) {
            std::vector<std::int32_t> tokens(20);
            std::iota(tokens.begin(), tokens.end(), first);
            return tokens;
        };
        for (int i = 0; i < 5; ++i) trees.serve(0, list(100 * i)); // lists of cells are as long as ever after these
        REQUIRE(trees.device.remove(Sequence{0}, Position{0}, to_end));
        trees.device.fence();
        const std::int64_t before = trees.device_tree.statistics().offloads;
        int fences = 0;
        const cellar_test::Listener listener{{.fence = [&](std::string_view) { ++fences; }}};
        auto pass = trees.device_tree.begin(BatchBuilder{Sequence{0}, Position{0}, 20});
        REQUIRE(pass);
        CHECK(trees.device_tree.statistics().offloads == before + 1);
        CHECK(fences == (to == OffloadTo::host ? 2 : 0));
        pass->drop();
    }
}

TEST_CASE("fences: to load a file, the program waits as often for many tokens as for few") {
    using Memory = Cache<StandardV<float>, FullCausal, DisabledShift, LateDevice>;
    const Folder folder;
    const auto fences_to_load = [&](int tokens) {
        Memory memory{{.layers = 2, .kv_heads = 4, .head_dim = 64},
                      {.sequences = 2, .capacity = tokens, .batch = tokens}};
        auto pass = memory.begin(Sequence{0}, tokens).value();
        for (int layer = 0; layer < memory.layers(); ++layer) pass.mark_put(layer); // zeros, as the cache begins
        pass.commit();
        const auto path = folder.path / std::to_string(tokens);
        REQUIRE(save(path, memory, Sequence{0}));
        REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
        memory.fence();
        int fences = 0;
        const cellar_test::Listener listener{{.fence = [&](std::string_view) { ++fences; }}};
        REQUIRE(load(path, memory, Sequence{1}));
        return fences;
    };
    const int of_one = fences_to_load(1);
    CHECK(of_one > 0);
    CHECK(fences_to_load(2048) == of_one); // of 2 MiB an array, in pieces of at most 256 KiB
}

TEST_CASE("fences: a backend without lists does not wait when it is destroyed") {
    int fences = 0;
    const cellar_test::Listener listener{{.fence = [&](std::string_view) { ++fences; }}};
    {
        LateDevice device;
        LateDevice moved{std::move(device)};
        device = std::move(moved);
    }
    { const cellar::KokkosBackend<cellar_test::HostSpace> host; }
    CHECK(fences == 0);
}

TEST_CASE("fences: a buffer is cleared by work that is enqueued on the backend's instance") {
    const cellar_test::Late space;
    LateDevice device{space};
    int fences = 0;
    const cellar_test::Listener listener{{.fence = [&](std::string_view) { ++fences; }}};
    const auto buffer = device.allocate<float>(64);
    CHECK(space.queue().launches == 1);
    CHECK(fences == 0);
    device.fence(); // before the buffer is destroyed
}

TEST_CASE("fences: all memory is allocated on the backend's instance") {
    const int before = LateSpace::without_instance;
    const int allocations = LateSpace::allocations;
    std::mt19937 random{5};
    RowsIn<LateDevice> memory{40, 2, 8};
    memory.fill(random);
    memory.move({{0, 1, 9}, {20, 30, 5}});
    memory.rotate(cellar_test::AddShift{4}, 0, {{3, 5, 2}});
    memory.scatter(Cells{1, 2}, std::vector<float>(2 * 16));
    static_cast<void>(memory.gather(Cells{1, 2}));
    memory.backend.reserve(10, 100);
    memory.backend.reserve_moves(100);
    memory.backend.reserve_rotations(cellar_test::AddShift{4}, 0, 100);
    memory.backend.reserve_slots(100);
    CHECK(LateSpace::allocations > allocations + 9);
    CHECK(LateSpace::without_instance == before);
}

} // namespace test_fences
