// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "attention.hpp"
#include "config.hpp"
#include "memory.hpp"
#include "recurrence.hpp"
#include <cellar/cellar.hpp>

#include <type_traits>

namespace llama {

/// A recurrent layer's state in a `RecurrentMemory`.
struct RecentInputs : cellar::StateTensor<2> {}; // [taps - 1, width]
struct Hidden : cellar::StateTensor<1> {};       // [width]

/// The memory of each kind of layers, for one text: the sliding layers' cache forgets what no layer of them sees any
/// more, the full layers' one keeps all, and the recurrent layers keep the newest state, and all of them what it takes
/// to take `rollback` tokens back. Keys are stored at their rotary positions.
template <class Layout, class Shift, class Work>
struct MemoryOf {
    using Backend = typename Work::Backend;
    using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Shift, Backend>;
    using Full = cellar::Cache<Layout, cellar::FullCausal, Shift, Backend>;
    using Recurrent = cellar::RecurrentMemory<cellar::States<RecentInputs, Hidden>, Backend>;

    const Work& work;
    const Config& config;
    Shift shift;
    int capacity;
    int batch;
    int rollback;

    Sliding sliding() const {
        const cellar::WindowOptions options{.retention = config.sliding_window + rollback};
        return {shape(LayerKind::sliding_attention), limits(), cellar::SlidingWindow<>{config.sliding_window, options},
                shift, work.backend()};
    }

    Full full() const {
        return {shape(LayerKind::full_attention), limits(), cellar::FullCausal{}, shift, work.backend()};
    }

    Recurrent recurrent() const {
        return {cellar::StateShape{config.layers(LayerKind::recurrent),
                                   {{config.conv1d_width - 1, config.lru_width}, {config.lru_width}}},
                cellar::StateLimits{.sequences = 1, .batch = batch, .rollback = rollback}, work.backend()};
    }

private:
    cellar::CacheShape shape(LayerKind kind) const {
        return {config.layers(kind), config.num_key_value_heads, config.head_dim};
    }
    cellar::CacheLimits limits() const { return {.sequences = 1, .capacity = capacity, .batch = batch}; }
};

/// What is done with keys before they are stored, whoever does the rest.
template <class Layout>
class KeyWork {
public:
    KeyWork(const Config& config, int capacity) : rotary_{config, capacity} {}

    /// Queries and keys get their rotary positions, of which the first is `first`.
    void rotate(Matrix& queries, Matrix& keys, int first) const {
        rotary_.rotate(queries, first);
        rotary_.rotate(keys, first);
    }

    /// The largest relative error of storing a number.
    static double unit_roundoff() {
        using Element = typename Layout::key_element;
        if (std::is_same_v<Element, cellar::half>) return 0x1p-11;
        if (std::is_same_v<Element, cellar::bfloat16>) return 0x1p-8;
        return 0x1p-24;
    }

private:
    Rotary rotary_;
};

/// What layers do with the passes of their memories: on the host, by Eigen.
template <class Layout>
class LayerWork : public KeyWork<Layout> {
public:
    using Backend = cellar::HostBackend;

    LayerWork(const Config& config, int capacity)
        : KeyWork<Layout>{config, capacity},
          attention_{config},
          kv_heads_{config.num_key_value_heads},
          dim_{config.head_dim} {}

    static Backend backend() { return {}; }

    // [attend]
    template <class Pass>
    void attend(Pass& pass, int layer, const Matrix& queries, const Matrix& keys, const Matrix& values, Matrix& out) {
        const auto tokens = keys.rows();
        pass.put(layer, cellar::contiguous_view(keys.data(), tokens, kv_heads_, dim_),
                 cellar::contiguous_view(values.data(), tokens, kv_heads_, dim_));
        const auto [seen_keys, seen_values, mask] = pass.get(layer);
        attention_(queries, seen_keys, seen_values, mask, out);
    }
    // [/attend]

    template <class Pass>
    static void recur(Pass& pass, int layer, const RecurrenceWeights& w, Matrix& x) {
        for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
            const auto inputs = pass.template get<RecentInputs>(layer, micro_batch); // [1 sequence, ...]
            const auto h = pass.template get<Hidden>(layer, micro_batch);
            llama::recur(w, {{inputs.pointer, inputs.extent(1), inputs.extent(2)}, {h.pointer, h.extent(1)}},
                         x.middleRows(micro_batch.tokens(0).front(), micro_batch.length()));
            pass.put(layer, micro_batch);
        }
    }

private:
    ViewAttention<Layout> attention_;
    int kv_heads_;
    int dim_;
};

/// A memory in numbers.
template <class Memory>
CacheUse use_of(const Memory& memory) {
    if constexpr (requires { memory.slots(); }) {
        return {memory.shape().layers(), memory.statistics().used, memory.slots(), memory.bytes()};
    } else {
        return {memory.shape().layers(), memory.tokens(cellar::Sequence{0}), memory.cells(), memory.bytes()};
    }
}

} // namespace llama
