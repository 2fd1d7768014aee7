// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "convolutions.hpp"
#include "memory.hpp"
#include "pool/texts_in_memory.hpp"
#include <cellar/cellar.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

// The memory's types are compiled in files of their own, one for each element and way, because they take longest.

namespace engine {

/// The caches of a model's layers.
template <class Layout>
struct Caches {
    using Shift = cellar::RopeShift<cellar::RunTimePairing>;
    using States = cellar::RecurrentMemory<cellar::States<RecentInputs>>;
    using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Shift>;
    using Full = cellar::Cache<Layout, cellar::FullCausal, Shift>;
    // The pattern comes from a file. The members have the order of `LayerKind`.
    using Hybrid = cellar::Hybrid<cellar::RunTimePattern, States, Sliding, Full>;

    /// `limits` of the full layers; sliding ones keep their window, or everything.
    static Hybrid make(const Shape& shape, const MemoryOptions& options, const cellar::CacheLimits& limits,
                       bool keeps_windows_only) {
        std::vector<int> members;
        for (int layer = 0; layer < shape.layers; ++layer) members.push_back(static_cast<int>(shape.kind(layer)));
        return Hybrid{members, states(shape, options.limits), sliding(shape, options, limits, keeps_windows_only),
                      full(shape, options, limits)};
    }

private:
    static cellar::CacheShape rows(const Shape& shape, LayerKind kind) {
        return {.layers = shape.count(kind), .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
    }
    static Shift shift(const Shape& shape, const Rope& rope, std::span<const float> divisors) {
        auto frequencies =
            cellar::linear_scaled(cellar::rope_frequencies(rope.dims, rope.base), 1 / static_cast<double>(rope.scale));
        if (!divisors.empty()) frequencies = cellar::divided_by(std::move(frequencies), divisors);
        return Shift{frequencies, cellar::RunTimePairing{.interleaved = !shape.architecture.neox}};
    }
    static std::optional<States> states(const Shape& shape, const llama::PoolLimits& limits) {
        const int layers = shape.count(LayerKind::convolution);
        if (layers == 0) return std::nullopt;
        return States{
            cellar::StateShape{layers, {{shape.width, shape.taps - 1}}},
            cellar::StateLimits{.sequences = limits.texts, .batch = limits.batch, .snapshots = limits.snapshots}};
    }
    static std::optional<Full> full(const Shape& shape, const MemoryOptions& options,
                                    const cellar::CacheLimits& limits) {
        if (shape.count(LayerKind::full) == 0) return std::nullopt;
        return Full{rows(shape, LayerKind::full), limits, cellar::FullCausal{},
                    shift(shape, shape.full, options.rope_divisors)};
    }
    static std::optional<Sliding> sliding(const Shape& shape, const MemoryOptions& options,
                                          const cellar::CacheLimits& limits, bool keeps_windows_only) {
        if (shape.count(LayerKind::sliding) == 0) return std::nullopt;
        cellar::CacheLimits own = limits;
        own.positions = cellar::Positions::any; // a removal may move forgotten positions into the window: a gap
        cellar::WindowOptions window;
        if (keeps_windows_only) {
            own.cells = (options.limits.texts + options.limits.snapshots) * (shape.window + 1) + options.limits.batch;
        } else {
            window.retention = std::max(shape.window, options.limits.context);
        }
        return Sliding{rows(shape, LayerKind::sliding), own, cellar::SlidingWindow<>{shape.window, window},
                       shift(shape, shape.sliding, {})};
    }
};

/// See `Memory::fill`.
template <class Hybrid>
void fill_randomly(Hybrid& hybrid, const Shape& shape, int batch, int text, int tokens) {
    std::mt19937 random{static_cast<std::mt19937::result_type>(text)};
    std::vector<float> rows;
    for (int count = 0; tokens > 0; tokens -= count) {
        count = std::min(tokens, batch);
        rows.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(shape.kv_heads * shape.head_dim));
        for (float& value : rows) value = static_cast<float>(random() % 4096) / 2048 - 1;
        const cellar::Sequence s{text};
        auto pass = hybrid.begin(cellar::BatchBuilder{s, hybrid.next(s), count});
        if (!pass) throw std::runtime_error{"the memory refused to be filled: " + to_string(pass.error())};
        for (int layer = 0; layer < pass->layers(); ++layer)
            pass->visit(layer, [&](auto& own, int index) {
                if constexpr (requires { own.mark_put(index); }) own.put(index, rows.data(), rows.data());
            });
        pass->commit();
    }
}

inline cellar::CacheLimits cache_limits(const llama::PoolLimits& limits) {
    return {.sequences = limits.texts, .capacity = limits.context, .cells = limits.cells, .batch = limits.batch};
}

} // namespace engine
