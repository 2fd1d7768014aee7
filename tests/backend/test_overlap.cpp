// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots are offloaded and reloaded while a thread does the work of passes: the results are those of the host, and,
// under the thread sanitizer, without a race.
#include "../tokens.hpp"
#include "worker.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace test_overlap {

using namespace cellar;
using cellar_test::batch_of;
using cellar_test::text;
using cellar_test::Text;
using cellar_test::WorkerBackend;

namespace {

constexpr int layers = 3;
constexpr int heads = 2;
constexpr int dim = 8;

template <class Layout, class Backend>
using CacheOn = Cache<Layout, FullCausal, DisabledShift, Backend>;

/// A cache whose passes nothing waits for.
template <class Layout, class Backend>
class Caches {
public:
    void feed(int sequence, int count) {
        const BatchBuilder batch{Sequence{sequence}, cache.next(Sequence{sequence}), count};
        const auto size = static_cast<std::size_t>(count * heads * dim); // of the keys or values of a layer
        std::vector<float>& rows = in_use_.emplace_back(2 * layers * size);
        for (float& x : rows) x = static_cast<float>(++last_ % 2000); // halves represent them
        auto pass = cache.begin(batch).value();
        std::span<const float> rest{rows};
        for (int layer = 0; layer < layers; ++layer, rest = rest.subspan(2 * size))
            pass.put(layer, rest.first(size), rest.subspan(size, size));
        pass.commit();
    }

    std::vector<float> elements() {
        cache.fence();
        std::vector<float> all;
        const auto pass = cache.reserve(1);
        for (int layer = 0; layer < layers; ++layer)
            for (const auto& view : {pass.keys(layer), pass.values(layer)})
                for (std::int64_t c = 0; c < view.extent(0); ++c)
                    for (std::int64_t h = 0; h < heads; ++h)
                        for (std::int64_t d = 0; d < dim; ++d) all.push_back(static_cast<float>(view(c, h, d)));
        return all;
    }

private:
    std::list<std::vector<float>> in_use_; // rows that work in flight may read, longer than the cache
    int last_ = 0;

public:
    CacheOn<Layout, Backend> cache{CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim},
                                   {.sequences = 3, .capacity = 20, .batch = 20}};
};

template <class Layout, class Backend>
std::vector<float> offloaded_cells(OffloadTo to) {
    Caches<Layout, Backend> c;
    for (int i = 0; i < 4; ++i)
        for (const int s : {0, 1}) c.feed(s, 2 + i); // the cells of two sequences alternate
    std::optional<CellSnapshot> first = c.cache.snapshot(Sequence{0}).value();
    REQUIRE(c.cache.remove(Sequence{0}, Position{0}, to_end));
    c.cache.offload(*first, to);
    c.feed(2, 20); // some in the cells that the snapshot gave up
    c.feed(1, 3);
    CellSnapshot second = c.cache.snapshot(Sequence{1}, Position{0}, Position{9}).value();
    c.cache.offload(second, to);
    CellSnapshot tail = c.cache.split(second, Position{4}).value(); // while the rows may still be copied
    REQUIRE(c.cache.merge(second, std::move(tail)));
    REQUIRE(c.cache.remove(Sequence{2}, Position{5}, to_end));
    REQUIRE(c.cache.restore(Sequence{0}, *first, Position{11}));
    c.feed(0, 2);
    first.reset(); // its rows may still be copied
    REQUIRE(c.cache.remove(Sequence{1}, Position{0}, to_end));
    REQUIRE(c.cache.reload(second));
    REQUIRE(c.cache.restore(Sequence{1}, second));
    c.feed(1, 4);
    return c.elements();
}

/// Two neighbours that lie in different places.
template <class Backend>
std::vector<float> joined_cells(OffloadTo parent_to, OffloadTo child_to) {
    Caches<StandardV<half>, Backend> c;
    c.feed(0, 10);
    CellSnapshot parent = c.cache.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    CellSnapshot child = c.cache.snapshot(Sequence{0}, Position{4}, Position{10}).value();
    c.cache.offload(parent, parent_to);
    c.cache.offload(child, child_to);
    REQUIRE(c.cache.merge(parent, std::move(child)));
    REQUIRE(c.cache.remove(Sequence{0}, Position{0}, to_end));
    c.feed(1, 10);
    REQUIRE(c.cache.restore(Sequence{0}, parent));
    return c.elements();
}

struct Sum : StateTensor<2> {};

template <class Backend>
class States {
public:
    void feed(const Text& tokens) {
        auto pass = memory.begin(batch_of(tokens)).value();
        for (int layer = 0; layer < 2; ++layer)
            for (const MicroBatch& micro_batch : pass.micro_batches()) {
                const auto states = pass.template get<Sum>(layer, micro_batch);
                for (std::int32_t i = 0; i < micro_batch.sequences(); ++i)
                    for (const std::int32_t token : micro_batch.tokens(i))
                        step(states.pointer + i * states.stride(0), states.stride(0),
                             static_cast<float>(tokens[static_cast<std::size_t>(token)].word));
                pass.put(layer, micro_batch);
            }
        pass.commit();
    }

    std::vector<float> elements(int sequence) {
        memory.fence();
        std::vector<float> all;
        for (int layer = 0; layer < 2; ++layer) {
            const auto view = memory.template view<Sum>(layer, memory.state(Sequence{sequence}));
            for (std::int64_t a = 0; a < view.extent(0); ++a)
                for (std::int64_t b = 0; b < view.extent(1); ++b) all.push_back(view(a, b));
        }
        return all;
    }

    RecurrentMemory<cellar::States<Sum>, Backend> memory{StateShape{2, {{3, 40}}},
                                                         {.sequences = 3, .batch = 12, .rollback = 2, .snapshots = 1}};

private:
    void step(float* state, std::int64_t size, float word) {
        const auto work = [=] {
            for (std::int64_t i = 0; i < size; ++i) state[i] = 0.5F * state[i] + word + static_cast<float>(i % 7);
        };
        if constexpr (requires { memory.backend().add({}, work); }) {
            memory.backend().add({state}, work);
        } else {
            work();
        }
    }
};

template <class Backend>
std::vector<float> offloaded_states(OffloadTo to) {
    States<Backend> s;
    s.feed(text(0, 0, 5) + text(1, 0, 3, 50));
    auto snapshot = std::make_unique<StateSnapshot>(s.memory.snapshot(Sequence{0}).value());
    REQUIRE(s.memory.remove(Sequence{0}, Position{0}, to_end));
    s.memory.offload(*snapshot, to);
    s.feed(text(2, 0, 4, 70) + text(1, 3, 2, 53));
    REQUIRE(s.memory.restore(Sequence{0}, *snapshot));
    REQUIRE(s.memory.restore(Sequence{2}, *snapshot));
    s.feed(text(0, 5, 2, 90));
    REQUIRE(s.memory.reload(*snapshot));
    REQUIRE(s.memory.restore(Sequence{1}, *snapshot));
    s.feed(text(1, 5, 1, 95));
    s.memory.offload(*snapshot, to);
    REQUIRE(s.memory.restore(Sequence{2}, *snapshot));
    snapshot.reset(); // its state may still be copied
    s.feed(text(2, 5, 1, 99));
    auto another = std::make_unique<StateSnapshot>(s.memory.snapshot(Sequence{2}).value());
    s.memory.offload(*another, to);
    another.reset();
    std::vector<float> all = s.elements(0);
    for (const int sequence : {1, 2})
        for (const float x : s.elements(sequence)) all.push_back(x);
    return all;
}

} // namespace

TEST_CASE("cells are offloaded and reloaded while a thread works on passes, as on the host") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend}) {
        CHECK(offloaded_cells<StandardV<half>, WorkerBackend>(to) == offloaded_cells<StandardV<half>, HostBackend>(to));
        CHECK(offloaded_cells<PermutedV<float>, WorkerBackend>(to)
              == offloaded_cells<PermutedV<float>, HostBackend>(to));
    }
}

TEST_CASE("neighbours in different places are joined while a thread works on them, as on the host") {
    for (const OffloadTo parent : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend})
        for (const OffloadTo child : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend})
            CHECK(joined_cells<WorkerBackend>(parent, child) == joined_cells<HostBackend>(parent, child));
}

TEST_CASE("states are offloaded and reloaded while a thread works on passes, as on the host") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend})
        CHECK(offloaded_states<WorkerBackend>(to) == offloaded_states<HostBackend>(to));
}

TEST_CASE("a cache that is destroyed waits for a snapshot that is being offloaded") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend}) {
        std::optional<CellSnapshot> snapshot;
        {
            Caches<StandardV<float>, WorkerBackend> c;
            c.feed(0, 10);
            snapshot = c.cache.snapshot(Sequence{0}).value();
            c.cache.offload(*snapshot, to);
        }
        snapshot.reset();
    }
}

} // namespace test_overlap
