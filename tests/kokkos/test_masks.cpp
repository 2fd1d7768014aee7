// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks that the device writes, here on the cores of the host, against those that the host writes.
#include "backend/masks.hpp"
#include "kokkos/device_on_host.hpp"
#include "kokkos/passes.hpp"
#include <cellar/cellar.hpp>

#include <cstring>
#include <random>
#include <vector>

using namespace cellar;
using cellar_test::DeviceOnHost;

static_assert(writes_masks<DeviceOnHost>);
static_assert(!writes_masks<KokkosBackend<Kokkos::DefaultHostExecutionSpace>>);
static_assert(!writes_masks<HostBackend>);

namespace {

template <class Window, class Backend>
using TestCache = Cache<StandardV<float>, Window, NoShift, Backend>;

template <class T, class A, class B>
void check_same(A& a, B& b) {
    const auto one = a.template mask<T>();
    const auto other = b.template mask<T>();
    REQUIRE(one.extent(0) == other.extent(0));
    REQUIRE(one.extent(1) == other.extent(1));
    CHECK(one.is_contiguous());
    CHECK((one.size() == 0
           || std::memcmp(one.pointer, other.pointer, static_cast<std::size_t>(one.size()) * sizeof(T)) == 0));
}

template <class Window>
void check_passes(const Window& window, std::int32_t padding) {
    const Limits limits{.sequences = 3, .capacity = 300, .batch = 40, .padding = padding};
    TestCache<Window, HostBackend> host{Shape{1, 1, 1}, limits, window};
    TestCache<Window, DeviceOnHost> device{Shape{1, 1, 1}, limits, window};
    std::mt19937 random{5};
    std::vector<int> next(3);
    for (int round = 0; round < 60; ++round) {
        std::vector<Position> positions;
        std::vector<Sequence> sequences;
        for (std::size_t left = random() % 40 + 1; left > 0; --left) {
            const auto s = random() % 3;
            if (next[s] == 300) continue;
            positions.push_back({next[s]++});
            sequences.push_back({static_cast<std::int32_t>(s)});
        }
        auto a = host.begin({positions, sequences});
        auto b = device.begin({positions, sequences});
        REQUIRE(a);
        REQUIRE(b);
        check_same<float>(*a, *b);
        check_same<half>(*a, *b);
        check_same<bool>(*a, *b);
        check_same<float>(*a, *b);
        a->commit();
        b->commit();
    }
}

} // namespace

TEST_CASE("masks on the device: every element and size") {
    cellar_test::check_written_masks<DeviceOnHost>();
}

TEST_CASE("masks on the device: as the host writes them") {
    check_passes(FullCausal{}, 1);
    check_passes(FullCausal{}, 32);
    check_passes(SlidingWindow<>{50}, 1);
    check_passes(ChunkedAttention<>{70}, 8);
}

TEST_CASE("device work in passes: as on the host") {
    cellar_test::check_passes<DeviceOnHost, StandardV<half>>();
    cellar_test::check_passes<DeviceOnHost, PermutedV<float>>();
}

TEST_CASE("masks on the device: a reserved pass sees all, and its address stays") {
    TestCache<FullCausal, HostBackend> host{Shape{1, 1, 1}, {.sequences = 1, .capacity = 100, .batch = 7}};
    TestCache<FullCausal, DeviceOnHost> device{Shape{1, 1, 1}, {.sequences = 1, .capacity = 100, .batch = 7}};
    const void* address = nullptr;
    {
        auto a = host.reserve(7);
        auto b = device.reserve(7);
        check_same<half>(a, b);
        check_same<float>(a, b);
        address = b.mask().pointer;
    }
    for (int p = 0; p < 98; p += 7) {
        std::vector<Position> positions;
        for (int i = 0; i < 7; ++i) positions.push_back({p + i});
        const std::vector<Sequence> sequences(7);
        auto pass = device.begin({positions, sequences});
        REQUIRE(pass);
        CHECK(static_cast<const void*>(pass->mask<bool>().pointer) == address);
        CHECK(static_cast<const void*>(pass->mask<float>().pointer) == address);
        pass->commit();
    }
}
