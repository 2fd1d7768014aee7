// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/states.hpp"
#include "backend/kokkos/twin_caches.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cellar_test {

/// Twins, and snapshots of both.
template <class Backend, class Layout>
class OffloadedCaches : public TwinCaches<Backend, Layout> {
public:
    OffloadedCaches() : TwinCaches<Backend, Layout>{3, {.sequences = 3, .capacity = 20, .batch = 20}} {}

    /// Calls `operation(cache, snapshots)` for both.
    template <class Operation>
    void both(Operation operation) {
        operation(this->host, host_snapshots_);
        operation(this->device, device_snapshots_);
    }

    void feed(int sequence, int count) {
        const cellar::BatchBuilder batch{cellar::Sequence{sequence}, this->host.next(cellar::Sequence{sequence}),
                                         count};
        this->run(this->host, this->device, batch, [&](std::size_t, int) { return ++last_; });
    }

private:
    std::vector<cellar::CellSnapshot> host_snapshots_;
    std::vector<cellar::CellSnapshot> device_snapshots_;
    int last_ = 0;
};

/// Pages snapshots out, while other sequences take their cells, and in again.
template <class Backend, class Layout>
void check_offloading(cellar::OffloadTo to) {
    OffloadedCaches<Backend, Layout> caches;
    for (int i = 0; i < 4; ++i)
        for (const int s : {0, 1}) caches.feed(s, 2 + i); // the cells of two sequences alternate
    caches.both([&](auto& cache, auto& snapshots) {
        snapshots.push_back(cache.snapshot(cellar::Sequence{0}).value());
        REQUIRE(cache.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::to_end));
        cache.offload(snapshots[0], to);
    });
    caches.feed(2, 20); // some of them in the cells that the snapshot gave up
    caches.feed(1, 3);
    caches.both([&](auto& cache, auto& snapshots) {
        snapshots.push_back(cache.snapshot(cellar::Sequence{1}, cellar::Position{0}, cellar::Position{9}).value());
        cache.offload(snapshots[1], to);
        REQUIRE(cache.remove(cellar::Sequence{2}, cellar::Position{5}, cellar::to_end));
        REQUIRE(cache.restore(cellar::Sequence{0}, snapshots[0], cellar::Position{11}));
    });
    caches.feed(0, 2);
    caches.both([&](auto& cache, auto& snapshots) {
        snapshots.erase(snapshots.begin()); // its rows may still be copied
        REQUIRE(cache.remove(cellar::Sequence{1}, cellar::Position{0}, cellar::to_end));
        REQUIRE(cache.reload(snapshots[0]));
        REQUIRE(cache.restore(cellar::Sequence{1}, snapshots[0]));
    });
    caches.feed(1, 4);
    caches.compare();
}

/// Divides and joins snapshots that are offloaded to `to`, in place, or offloaded to `other`.
template <class Backend, class Layout>
void check_parts(cellar::OffloadTo to, cellar::OffloadTo other) {
    OffloadedCaches<Backend, Layout> caches;
    for (int i = 0; i < 4; ++i)
        for (const int s : {0, 1}) caches.feed(s, 2 + i);
    caches.both([&](auto& cache, auto& snapshots) {
        snapshots.push_back(cache.snapshot(cellar::Sequence{0}).value());
        REQUIRE(cache.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::to_end));
        cache.offload(snapshots[0], to);
        snapshots.push_back(cache.split(snapshots[0], cellar::Position{5}).value());
        snapshots.push_back(cache.split(snapshots[1], cellar::Position{9}).value());
        REQUIRE(cache.merge(snapshots[2], cache.split(snapshots[2], cellar::Position{14}).value())); // nothing
    });
    caches.feed(2, 20); // some of them in the cells that the snapshot gave up
    caches.both([&](auto& cache, auto& snapshots) {
        REQUIRE(cache.reload(snapshots[2]));
        cache.offload(snapshots[2], other);
        REQUIRE(cache.restore(cellar::Sequence{0}, snapshots[0]));
        REQUIRE(cache.restore(cellar::Sequence{0}, snapshots[1]));
        REQUIRE(cache.merge(snapshots[0], std::move(snapshots[1])));
        REQUIRE(cache.merge(snapshots[0], std::move(snapshots[2])));
        REQUIRE(cache.restore(cellar::Sequence{0}, snapshots[0]));
        REQUIRE(cache.remove(cellar::Sequence{2}, cellar::Position{5}, cellar::to_end));
    });
    caches.feed(0, 3);
    caches.both([&](auto& cache, auto& snapshots) {
        REQUIRE(cache.merge(snapshots[0], cache.snapshot(cellar::Sequence{0}, cellar::Position{14}).value()));
        cellar::CellSnapshot head =
            cache.snapshot(cellar::Sequence{1}, cellar::Position{0}, cellar::Position{4}).value();
        cellar::CellSnapshot tail =
            cache.snapshot(cellar::Sequence{1}, cellar::Position{4}, cellar::Position{10}).value();
        cache.offload(tail, other);
        REQUIRE(cache.merge(head, std::move(tail)));
        REQUIRE(cache.restore(cellar::Sequence{2}, head));
    });
    caches.feed(1, 2);
    caches.both([&](auto& cache, auto& snapshots) {
        REQUIRE(cache.restore(cellar::Sequence{1}, snapshots[0]));
        snapshots.clear(); // the rows may still be copied
    });
    caches.compare();
}

/// Offloads and reloads states.
template <class Backend>
void check_state_offloading(cellar::OffloadTo to) {
    using Space = typename Backend::memory_space;
    StepModel<cellar::HostBackend> host;
    StepModel<Backend> device;
    const auto run = [to](auto& model) {
        model.feed(text(0, 0, 5) + text(1, 0, 3, 50));
        auto snapshot = std::make_unique<cellar::StateSnapshot>(model.memory.snapshot(cellar::Sequence{0}).value());
        REQUIRE(model.memory.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::to_end));
        model.memory.offload(*snapshot, to);
        model.feed(text(2, 0, 4, 70) + text(1, 3, 2, 53), Fenced::no);
        REQUIRE(model.memory.restore(cellar::Sequence{0}, *snapshot));
        REQUIRE(model.memory.restore(cellar::Sequence{2}, *snapshot));
        model.feed(text(0, 5, 2, 90), Fenced::no);
        REQUIRE(model.memory.reload(*snapshot));
        REQUIRE(model.memory.restore(cellar::Sequence{1}, *snapshot));
        model.feed(text(1, 5, 1, 95), Fenced::no);
        model.memory.offload(*snapshot, to);
        REQUIRE(model.memory.restore(cellar::Sequence{2}, *snapshot));
        snapshot.reset(); // its state may still be copied
        model.feed(text(2, 5, 1, 99));
    };
    run(host);
    run(device);
    for (int layer = 0; layer < 2; ++layer)
        for (int sequence = 0; sequence < 3; ++sequence) {
            CHECK(host.elements<Wide, Kokkos::HostSpace>(layer, sequence)
                  == device.template elements<Wide, Space>(layer, sequence));
            CHECK(host.elements<Narrow, Kokkos::HostSpace>(layer, sequence)
                  == device.template elements<Narrow, Space>(layer, sequence));
        }
}

} // namespace cellar_test
