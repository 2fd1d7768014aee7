// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// On a device, second phases neither allocate nor wait, and first phases refuse without a trace.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/passes.hpp"
#include "backend/kokkos/tools.hpp"
#include "hybrid/failing_allocations.hpp"
#include "shift/archetypes.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <optional>
#include <ostream>
#include <string_view>
#include <vector>

namespace test_phases {

using namespace cellar;
using cellar_test::elements_of;
using cellar_test::LateDevice;
using cellar_test::LateSpace;

namespace {

constexpr int layers = 3;
constexpr int heads = 2;
constexpr int dim = 8;

/// A cache on the host and one on a device that do the same.
template <class Layout>
struct Both {
    using Shift = cellar_test::AddShift;

    explicit Both(const CacheLimits& limits)
        : host{CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits, FullCausal{}, Shift{4}},
          device{CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits, FullCausal{}, Shift{4}} {
        std::iota(rows.begin(), rows.end(), -500.0F);
    }
    ~Both() { device.fence(); } // before the rows are destroyed

    void feed(int sequence, int tokens) {
        const Position next = host.next(Sequence{sequence});
        BatchBuilder batch;
        for (int i = 0; i < tokens; ++i) batch.add(Sequence{sequence}, next + i);
        const auto view =
            contiguous_view(static_cast<const float*>(rows.data()) + 3 * (fed++ % 50), tokens, heads, dim);
        const auto feed_one = [&](auto& cache) {
            auto pass = cache.begin(batch);
            REQUIRE(pass);
            for (int layer = 0; layer < layers; ++layer) pass->put(layer, view, view);
            pass->commit();
        };
        feed_one(host);
        feed_one(device);
    }

    bool are_same() {
        device.fence();
        auto a = host.reserve(0);
        auto b = device.reserve(0);
        bool same = true;
        for (int s = 0; s < host.sequences(); ++s)
            same = same && host.tokens(Sequence{s}) == device.tokens(Sequence{s});
        for (int layer = 0; layer < layers; ++layer)
            same = same && elements_of<Kokkos::HostSpace>(a.keys(layer)) == elements_of<LateSpace>(b.keys(layer))
                   && elements_of<Kokkos::HostSpace>(a.values(layer)) == elements_of<LateSpace>(b.values(layer));
        return same;
    }

    std::vector<float> rows = std::vector<float>(2000);
    Cache<Layout, FullCausal, Shift, HostBackend> host;
    Cache<Layout, FullCausal, Shift, LateDevice> device;
    int fed = 0;
};

/// What a call allocates, and how often it waits.
struct Costs {
    int on_device = 0;
    int by_kokkos = 0;
    int new_calls = 0;
    int fences = 0;

    bool operator==(const Costs&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Costs& c) {
    return out << c.on_device << " allocations on the device, " << c.by_kokkos << " by Kokkos, " << c.new_calls
               << " calls of new, " << c.fences << " fences";
}

enum class Counted { events, new_calls };

/// Listening to events calls new, so these are counted apart.
template <class Call>
Costs costs_of(Counted counted, Call call) {
    Costs costs;
    const int before = LateSpace::allocations;
    if (counted == Counted::new_calls) {
        constexpr int enough = 1'000'000;
        const FailingAllocations counter{enough};
        call();
        if (cellar_test::new_calls_are_ours) costs.new_calls = static_cast<int>(enough - FailingAllocations::left());
    } else {
        const cellar_test::Listener listener{{.fence = [&](std::string_view) { ++costs.fences; },
                                              .allocation = [&](std::string_view) { ++costs.by_kokkos; }}};
        call();
    }
    costs.on_device = LateSpace::allocations - before;
    return costs;
}

/// A sequence of 40 tokens, the first 30 of which another one shares.
template <class Layout>
void fill(Both<Layout>& both) {
    both.feed(0, 40);
    REQUIRE(both.host.copy_prefix(Sequence{0}, Sequence{1}, Position{30}));
    REQUIRE(both.device.copy_prefix(Sequence{0}, Sequence{1}, Position{30}));
    both.feed(1, 5);
}

} // namespace

TEST_CASE_TEMPLATE("phases: what finishes on a device neither allocates nor waits", Layout, StandardV<float>,
                   PermutedV<cellar::half>) {
    for (const Counted counted : {Counted::events, Counted::new_calls}) {
        Both<Layout> both{{.sequences = 2, .capacity = 60, .batch = 40}};
        fill(both);
        {
            auto prepared = both.device.prepare(op::Remove{Sequence{0}, Position{3}, Position{8}}); // of shared cells
            REQUIRE(prepared);
            CHECK(costs_of(counted, [&] { both.device.finish(*std::move(prepared)); }) == Costs{});
            REQUIRE(both.host.remove(Sequence{0}, Position{3}, Position{8}));
        }
        {
            auto prepared = both.device.prepare(op::Remove{Sequence{0}, Position{20}, Position{21}}); // of its own, now
            REQUIRE(prepared);
            CHECK(costs_of(counted, [&] { both.device.finish(*std::move(prepared)); }) == Costs{});
            REQUIRE(both.host.remove(Sequence{0}, Position{20}, Position{21}));
        }
        {
            auto prepared = both.device.prepare(op::CopyPrefix{Sequence{0}, Sequence{1}, Position{11}});
            REQUIRE(prepared);
            CHECK(costs_of(counted, [&] { both.device.finish(*std::move(prepared)); }) == Costs{});
            REQUIRE(both.host.copy_prefix(Sequence{0}, Sequence{1}, Position{11}));
        }
        CHECK(both.are_same());
    }
}

TEST_CASE_TEMPLATE("phases: a pass that defragments first opens without an allocation", Layout, StandardV<float>,
                   PermutedV<cellar::half>) {
    for (const Counted counted : {Counted::events, Counted::new_calls}) {
        Both<Layout> both{{.sequences = 2, .capacity = 8, .batch = 8, .placement = Placement::contiguous}};
        for (int i = 0; i < 12; ++i) both.feed(i % 2, 1);
        REQUIRE(both.host.remove(Sequence{1}, Position{0}, to_end));
        REQUIRE(both.device.remove(Sequence{1}, Position{0}, to_end));
        const std::vector<Position> positions{Position{0}, Position{1}, Position{2}, Position{3},
                                              Position{4}, Position{5}, Position{6}, Position{7}};
        const std::vector<Sequence> sequences(8, Sequence{1});
        {
            auto prepared = both.device.prepare(op::Begin{{positions, sequences}});
            REQUIRE(prepared);
            using Pass = decltype(both.device.finish(*std::move(prepared)));
            std::optional<Pass> pass;
            CHECK(costs_of(counted, [&] { static_cast<void>(pass.emplace(both.device.finish(*std::move(prepared)))); })
                  == Costs{});
            CHECK(pass->cells().front() == 6);
            CHECK(pass->cells().back() == 13);
            pass->drop();
        }
        REQUIRE(both.host.begin({positions, sequences}));
        CHECK(both.are_same());
    }
}

namespace {

struct Tail : StateTensor<1> {};

} // namespace

TEST_CASE("phases: a pass over new states opens without an allocation") {
    for (const Counted counted : {Counted::events, Counted::new_calls}) {
        RecurrentMemory<States<Tail>, LateDevice> memory{StateShape{layers, {{5}}}, {.sequences = 3, .batch = 3}};
        const std::vector<Position> positions(3);
        const std::vector<Sequence> sequences{Sequence{0}, Sequence{1}, Sequence{2}};
        auto prepared = memory.prepare(op::Begin{{positions, sequences}});
        REQUIRE(prepared);
        using Pass = decltype(memory.finish(*std::move(prepared)));
        std::optional<Pass> pass;
        CHECK(costs_of(counted, [&] { static_cast<void>(pass.emplace(memory.finish(*std::move(prepared)))); })
              == Costs{});
        CHECK(memory.backend().space().queue().launches > 0);
        pass->drop();
    }
}

namespace {

/// Calls `operation` with ever later allocations on the device failing, and `check` after each, until it succeeds. How
/// often it failed.
template <class Operation, class Check>
int failures_on_device(Operation operation, Check check) {
    for (int successes = 0;; ++successes) {
        LateSpace::left = successes;
        try {
            operation();
            LateSpace::left = -1;
            return successes;
        } catch (const std::bad_alloc&) {}
        LateSpace::left = -1;
        check();
    }
}

} // namespace

TEST_CASE_TEMPLATE("phases: a removal that the device has no memory for changes nothing", Layout, StandardV<float>,
                   PermutedV<cellar::half>) {
    Both<Layout> both{{.sequences = 2, .capacity = 60, .batch = 40}};
    fill(both);
    bool removed = false;
    const int failures =
        failures_on_device([&] { removed = both.device.remove(Sequence{0}, Position{3}, Position{8}).has_value(); },
                           [&] { CHECK(both.are_same()); });
    CHECK(removed);
    CHECK(failures == 2); // at the list of moves, and, which then has memory, at that of rotations
    REQUIRE(both.host.remove(Sequence{0}, Position{3}, Position{8}));
    CHECK(both.are_same());
    REQUIRE(both.device.remove(Sequence{0}, Position{2}, Position{30})); // leaves holes
    REQUIRE(both.host.remove(Sequence{0}, Position{2}, Position{30}));
    both.host.defragment();
    CHECK(failures_on_device([&] { both.device.defragment(); }, [] {}) == 0); // it has memory by now
    CHECK(both.are_same());
}

TEST_CASE("phases: a defragmentation that the device has no memory for changes nothing") {
    Both<StandardV<float>> both{{.sequences = 2, .capacity = 8, .batch = 8, .placement = Placement::scattered}};
    for (int i = 0; i < 12; ++i) both.feed(i % 2, 1);
    REQUIRE(both.host.remove(Sequence{1}, Position{0}, to_end));
    REQUIRE(both.device.remove(Sequence{1}, Position{0}, to_end));
    CHECK(failures_on_device([&] { both.device.defragment(); }, [&] { CHECK(both.are_same()); }) == 1);
    both.host.defragment();
    CHECK(both.are_same());
}

TEST_CASE("phases: a memory that does not fit on the device throws, and leaves nothing behind") {
    using DeviceCache = Cache<StandardV<float>, FullCausal, DisabledShift, LateDevice>;
    const auto make = [] {
        const DeviceCache cache{CacheShape{.layers = 2, .kv_heads = 1, .head_dim = 4}, {.capacity = 8, .batch = 8}};
    };
    CHECK(failures_on_device(make, [] {}) == 5); // keys and values of two layers, masks
    using DeviceStates = RecurrentMemory<States<Tail>, LateDevice>;
    const auto make_states = [] { const DeviceStates states{StateShape{2, {{4}}}, {.sequences = 2, .batch = 2}}; };
    CHECK(failures_on_device(make_states, [] {}) == 5); // two layers, gathered rows, two lists
}

} // namespace test_phases
