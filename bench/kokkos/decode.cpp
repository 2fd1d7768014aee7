// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layers.hpp"
#include <cellar/cache/cache.hpp>
#include <cellar/shift/disabled_shift.hpp>
#include <cellar/window/full_causal.hpp>

/// A decode step of one sequence without the model: `begin`, `put` in all layers, `commit`. For comparison, `launches`
/// runs as many empty kernels as there are tensors to write.
namespace cellar::bench {
namespace {

struct Nothing {
    KOKKOS_FUNCTION void operator()(int) const {}
};

template <class Layout>
void measure_step(benchmark::State& state, Cell cells) {
    using E = typename Layout::key_format;
    const int layers = layers_of<E>(cells);
    Cache<Layout, FullCausal, DisabledShift, Backend> cache{
        CacheShape{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim},
        {.sequences = 1, .capacity = cells, .batch = 1}};
    Backend backend;
    Rows<E> rows{backend, layers, 1};
    const std::vector<Sequence> sequence{cellar::Sequence{0}};
    std::vector<Position> position{cellar::Position{0}};
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        auto pass = cache.begin({position, sequence});
        for (int layer = 0; layer < layers; ++layer)
            pass->put(layer, rows.keys(static_cast<std::size_t>(layer)), rows.values(static_cast<std::size_t>(layer)));
        pass->commit();
        cache.fence();
        watch.stop();
        position[0] = position[0] + 1;
        if (position[0].value < cells) return;
        (void)cache.remove(cellar::Sequence{0}, cellar::Position{0}, to_end).has_value();
        position[0] = cellar::Position{0};
    });
}

void measure_launches(benchmark::State& state, int launches) {
    const Space space;
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        for (int i = 0; i < launches; ++i) Kokkos::parallel_for("nothing", Kokkos::RangePolicy(space, 0, 1), Nothing{});
        space.fence();
        watch.stop();
    });
}

template <class Layout>
void add_all(const std::string& layout) {
    for (const Cell cells : kokkos_capacities) {
        const std::string name = "decode/" + layout + "/1/" + std::to_string(cells / 1024) + "k";
        const int layers = layers_of<typename Layout::key_format>(cells);
        add(name + "/cellar", [=](benchmark::State& state) { measure_step<Layout>(state, cells); });
        add(name + "/launches", [=](benchmark::State& state) { measure_launches(state, 2 * layers); });
    }
}

} // namespace

void add_decode() {
    add_all<StandardV<half>>("standard_half");
    add_all<PermutedV<half>>("permuted_half");
}

} // namespace cellar::bench
