// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../stopwatch.hpp"
#include <cellar/backend/kokkos.hpp>
#include <cellar/cache/detail/layer_store.hpp>
#include <cellar/layout/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The memory of a model with the shape of Llama 3 8B on Kokkos, compared with Kokkos copies of as many bytes by the
/// same threads. Benchmarks are named job/layout and element/tokens or cells per run/cells/variant.
namespace cellar::bench {

using Space = Kokkos::DefaultExecutionSpace;
using Backend = KokkosBackend<Space>;

inline constexpr int model_layers = 32;
inline constexpr int kv_heads = 8;
inline constexpr int head_dim = 128;
inline constexpr std::int64_t row = kv_heads * head_dim;
inline constexpr Cell kokkos_capacities[] = {4 * 1024, 32 * 1024};

void add_rows();
void add_decode();
void add_attention();

/// All layers, or as many as fit in 2 GiB. Jobs go through the layers one after another, so nothing of a layer is left
/// in the processor's caches when the layer is used again.
template <class E>
int layers_of(Cell cells) {
    constexpr std::int64_t max_bytes = std::int64_t{2} << 30;
    const std::int64_t layer_bytes = 2 * cells * row * std::int64_t{sizeof(E)};
    return static_cast<int>(std::min<std::int64_t>(model_layers, max_bytes / layer_bytes));
}

template <class Layout>
struct Layers {
    using E = typename Layout::key_format;
    using Store = detail::LayerStore<Layout, Backend>;

    explicit Layers(Cell the_cells) : cells{the_cells} {
        for (int layer = 0; layer < layers_of<E>(cells); ++layer)
            stores.emplace_back(backend, cells, LayerShape{kv_heads, head_dim, head_dim});
    }

    int count() const { return static_cast<int>(stores.size()); }

    Cell cells;
    Backend backend;
    std::vector<Store> stores;
};

/// Keys and values of `tokens` tokens, separate for each layer.
template <class E>
struct Rows {
    Rows(Backend& backend, int layers, std::int32_t the_tokens) : tokens{the_tokens} {
        for (int i = 0; i < 2 * layers; ++i) memory.push_back(backend.allocate<E>(tokens * row));
    }

    auto keys(std::size_t layer) { return view(memory[2 * layer]); }
    auto values(std::size_t layer) { return view(memory[2 * layer + 1]); }

    std::int32_t tokens;
    std::vector<Backend::Buffer<E>> memory;

private:
    auto view(Backend::Buffer<E>& buffer) const { return contiguous_view(buffer.data(), tokens, kv_heads, head_dim); }
};

/// The limit: copies of `tokens` rows, `tensors` times in each layer.
template <class E>
class Copies {
public:
    Copies(Backend& backend, int layers, std::int32_t tokens, int tensors) : backend_{backend} {
        for (int i = 0; i < layers * tensors; ++i) {
            from_.push_back(backend.allocate<E>(tokens * row));
            to_.push_back(backend.allocate<E>(tokens * row));
        }
    }

    void operator()() {
        for (std::size_t i = 0; i < from_.size(); ++i)
            Kokkos::deep_copy(backend_.space(), to_[i].view(), from_[i].view());
    }

private:
    Backend& backend_;
    std::vector<Backend::Buffer<E>> from_;
    std::vector<Backend::Buffer<E>> to_;
};

/// Measures `job`, and the copies as the counter `copy`. The two alternate, so that disturbances affect both.
template <class E, class Job>
void measure_with_copies(benchmark::State& state, Backend& backend, Copies<E> copies, Job job) {
    Stopwatch limit;
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        job();
        backend.fence();
        watch.stop();
        limit.start();
        copies();
        backend.fence();
        limit.stop();
    });
    state.counters["copy"] = limit.median();
}

} // namespace cellar::bench
