// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layers.hpp"
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <numeric>
#include <random>

/// Jobs that move rows: `put` of a batch, `gather` of a sequence whose cells are runs of a given length in random
/// places, `move` of runs (a quarter of the cells, as in a defragmentation), `rotate` of the keys in half of the cells.
namespace cellar::bench {
namespace {

constexpr std::int32_t prompt = 512;

struct Sum {
    const std::uint64_t* words;

    KOKKOS_FUNCTION void operator()(std::int64_t i, std::uint64_t& sum) const { sum += words[i]; }
};

template <class E>
StridedView<const E, 3> constant(const StridedView<E, 3>& rows) {
    return rows;
}

template <class Layout>
void measure_put(benchmark::State& state, Cell cells) {
    using E = typename Layout::key_format;
    Layers<Layout> layers{cells};
    Rows<E> rows{layers.backend, layers.count(), prompt};
    std::vector<Cell> taken(prompt);
    std::iota(taken.begin(), taken.end(), cells / 2);
    measure_with_copies<E>(state, layers.backend, {layers.backend, layers.count(), prompt, 2}, [&] {
        for (std::size_t i = 0; i < layers.stores.size(); ++i) {
            layers.stores[i].all_keys().put(layers.backend, taken, constant(rows.keys(i)));
            layers.stores[i].all_values().put(layers.backend, taken, constant(rows.values(i)));
        }
    });
}

// `tokens` cells in runs of `length`, at random places in random order.
std::vector<Cell> scattered(Cell cells, std::int32_t tokens, std::int32_t length) {
    std::vector<Cell> runs(static_cast<std::size_t>(cells / length));
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = static_cast<Cell>(i) * length;
    std::shuffle(runs.begin(), runs.end(), std::mt19937{1});
    std::vector<Cell> found;
    for (std::size_t i = 0; std::ssize(found) < tokens; ++i)
        for (Cell cell = runs[i]; cell < runs[i] + length; ++cell) found.push_back(cell);
    return found;
}

std::int32_t gathered_tokens(Cell cells) {
    return std::min(cells / 4, 4096);
}

template <class Layout>
void measure_gather(benchmark::State& state, Cell cells, std::int32_t length) {
    using E = typename Layout::key_format;
    Layers<Layout> layers{cells};
    Rows<E> rows{layers.backend, layers.count(), gathered_tokens(cells)};
    const std::vector<Cell> from = scattered(cells, rows.tokens, length);
    measure_with_copies<E>(state, layers.backend, {layers.backend, layers.count(), rows.tokens, 2}, [&] {
        for (std::size_t i = 0; i < layers.stores.size(); ++i) {
            layers.stores[i].read_keys().gather(layers.backend, from, rows.keys(i));
            layers.stores[i].read_values().gather(layers.backend, from, rows.values(i));
        }
    });
}

// The limit for gathering single cells from strips: copies the keys, reads all cache lines of the values, and writes as
// many rows of values as are gathered.
template <class Layout>
void measure_touch(benchmark::State& state, Cell cells) {
    using E = typename Layout::key_format;
    Layers<Layout> layers{cells};
    Rows<E> rows{layers.backend, layers.count(), gathered_tokens(cells)};
    Copies<E> keys{layers.backend, layers.count(), rows.tokens, 1};
    measure(state, [&](Stopwatch& watch) {
        std::uint64_t sum = 0;
        watch.start();
        keys();
        for (std::size_t i = 0; i < layers.stores.size(); ++i) {
            const auto values = layers.stores[i].read_values().view({0, cells});
            const Sum all{reinterpret_cast<const std::uint64_t*>(values.data_handle())};
            const auto words = static_cast<std::size_t>(values.size()) * sizeof(E) / sizeof(std::uint64_t);
            Kokkos::parallel_reduce(Kokkos::RangePolicy<Space>(layers.backend.space(), 0, words), all, sum);
            Kokkos::deep_copy(layers.backend.space(), rows.memory[2 * i].view(), E{});
        }
        layers.backend.fence();
        watch.stop();
        benchmark::DoNotOptimize(sum);
    });
}

template <class Layout>
void measure_move(benchmark::State& state, Cell cells, std::int32_t length) {
    using E = typename Layout::key_format;
    Layers<Layout> layers{cells};
    std::vector<Move> moves;
    for (Cell cell = 0; cell < cells / 2; cell += 2 * length) moves.push_back({cells / 2 + cell, cell, length});
    measure_with_copies<E>(state, layers.backend, {layers.backend, layers.count(), cells / 4, 2}, [&] {
        for (auto& store : layers.stores)
            detail::for_each_plane(store, Layers<Layout>::Store::planes(), [&](auto& plane) {
                layers.backend.move(plane.mapping(), plane.memory(), std::span<const Move>{moves});
            });
    });
}

template <class Layout>
void measure_rotate(benchmark::State& state, Cell cells) {
    using E = typename Layout::key_format;
    Layers<Layout> layers{cells};
    const RopeShift<Neox> shift{rope_frequencies(head_dim, 500000)};
    const std::vector<KeyRotation> rotations{{cells / 2, cells / 2, -cells / 4}};
    measure_with_copies<E>(state, layers.backend, {layers.backend, layers.count(), cells / 2, 1}, [&] {
        for (auto& store : layers.stores) store.all_keys().rotate(layers.backend, shift, 0, rotations);
    });
}

template <class Layout>
void add_all(const std::string& layout) {
    for (const Cell cells : kokkos_capacities) {
        const auto add_job = [&](const std::string& job, int number, const std::string& variant, auto measured) {
            add(job + "/" + layout + "/" + std::to_string(number) + "/" + std::to_string(cells / 1024) + "k/" + variant,
                [=](benchmark::State& state) { measured(state); });
        };
        add_job("put", prompt, "cellar", [=](benchmark::State& state) { measure_put<Layout>(state, cells); });
        for (const int length : {1, 64})
            add_job("gather", length, "cellar",
                    [=](benchmark::State& state) { measure_gather<Layout>(state, cells, length); });
        if constexpr (cellar::detail::contiguous_cells<typename Layout::value_mapping>)
            add_job("gather", 1, "touch", [=](benchmark::State& state) { measure_touch<Layout>(state, cells); });
        for (const int length : {64, 512})
            add_job("move", length, "cellar",
                    [=](benchmark::State& state) { measure_move<Layout>(state, cells, length); });
        add_job("rotate", 1, "cellar", [=](benchmark::State& state) { measure_rotate<Layout>(state, cells); });
    }
}

} // namespace

void add_rows() {
    add_all<StandardV<half>>("standard_half");
    add_all<StandardV<float>>("standard_float");
    add_all<Blocked<half>>("blocked_half");
    add_all<Blocked<float>>("blocked_float");
    add_all<PermutedV<half>>("permuted_half");
    add_all<PermutedV<float>>("permuted_float");
}

} // namespace cellar::bench
