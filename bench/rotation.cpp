// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "stopwatch.hpp"
#include <cellar/cellar.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

/// `rotate`: the keys of a layer of 8 heads of 128 elements in all cells, by the host's backend, as in a removal. The
/// state names the pairing and the element. The counter `memcpy` is the time of copying as many bytes to memory in
/// use. The keys of 4k cells fit in the processor's caches.
namespace cellar::bench {
namespace {

constexpr int heads = 8;
constexpr int dim = 128;

template <class Pairing, class E>
void measure_rotate(benchmark::State& state, Cell cells) {
    const HostBackend backend;
    const CellsHeadsDims mapping{cells, heads, dim};
    auto keys = backend.allocate<E>(mapping.required_size());
    for (std::int64_t i = 0; i < keys.size(); ++i)
        keys.data()[i] = static_cast<E>(static_cast<float>(i % 1000) * 0.002F - 1);
    std::vector<E> copy(static_cast<std::size_t>(keys.size()));
    const RopeShift<Pairing> shift{rope_frequencies(dim, 500000)};
    std::int32_t delta = 1;
    Stopwatch limit;
    measure(state, [&](Stopwatch& watch) {
        limit.start();
        std::memcpy(copy.data(), keys.data(), copy.size() * sizeof(E));
        limit.stop();
        delta = -delta;
        const std::vector<KeyRotation> rotations{{0, cells, delta}};
        watch.start();
        backend.rotate(mapping, keys, shift, 0, rotations);
        watch.stop();
    });
    state.counters["memcpy"] = limit.median();
}

template <class Pairing, class E>
void add_all(const std::string& name) {
    for (const Cell cells : {4 * 1024, 32 * 1024})
        add("rotate/" + name + "/1/" + std::to_string(cells / 1024) + "k/cellar",
            [=](benchmark::State& state) { measure_rotate<Pairing, E>(state, cells); });
}

template <class E>
void add_pairings(const std::string& element) {
    add_all<Neox, E>("neox_" + element);
    add_all<Interleaved, E>("interleaved_" + element);
}

} // namespace

void add_rotation() {
    add_pairings<half>("half");
    add_pairings<bfloat16>("bfloat16");
    add_pairings<float>("float");
}

} // namespace cellar::bench
