// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "convolutions.hpp"
#include "memory_types.hpp"
#include "pool/texts_in_memory.hpp"
#include <cellar/cellar.hpp>
#include <cellar/models/make_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

// The memory's types are compiled in files of their own, one for each format and way, because they take longest.

namespace engine {

template <class Layout>
using SlidingOf = cellar::Cache<Layout, cellar::SlidingWindow<>, cellar::RopeShift<cellar::RunTimePairing>>;
template <class Layout>
using FullOf = cellar::Cache<Layout, cellar::FullCausal, cellar::RopeShift<cellar::RunTimePairing>>;

/// The memory of a model whose layers are known at run time.
template <class Sliding, class Full>
using HybridOfCaches =
    cellar::Hybrid<cellar::RunTimePattern, cellar::RecurrentMemory<cellar::States<RecentInputs>>, Sliding, Full>;
template <class Layout>
using HybridOf = HybridOfCaches<SlidingOf<Layout>, FullOf<Layout>>;

/// A cache, and beside it one that has the newest tokens in half.
template <class Cache>
using WithNewest = cellar::Hybrid<cellar::WithResidual, Cache, SlidingOf<cellar::Blocked<cellar::half>>>;
template <class Layout>
using HybridWithNewest = HybridOfCaches<WithNewest<SlidingOf<Layout>>, WithNewest<FullOf<Layout>>>;

/// `attend` keeps of sliding layers the windows alone. ggml's attention has placement, padding and windows as in
/// libllama, and so every bit.
inline cellar::models::MemoryLimits memory_limits(const Shape& shape, const MemoryOptions& options) {
    const llama::PoolLimits& given = options.limits;
    int window = 0;
    for (const LayerDescription& layer : shape.memory.layers) window = std::max(window, layer.window);
    cellar::models::MemoryLimits limits;
    limits.attention = {
        .sequences = given.texts, .capacity = given.context, .cells = given.cells, .batch = given.batch};
    if (options.way == Way::flash) {
        limits.attention.padding = 256;
        limits.attention.start_padding = 0;
        limits.attention.placement = cellar::Placement::scattered;
    }
    limits.sliding = limits.attention;
    // A removal may move forgotten positions into the window: a gap.
    limits.sliding->positions = cellar::Positions::any;
    if (options.way == Way::flash) {
        limits.window.retention = std::max(window, given.context);
    } else {
        limits.window.retention = window + 1 + options.rollback;
        limits.sliding->cells = (given.texts + given.snapshots) * limits.window.retention + given.batch;
    }
    // No sinks: tokens that are moved to the front are not there any more.
    limits.residual.tokens = std::max(1, options.residual);
    limits.residual.window.retention = options.residual + 1 + options.rollback;
    limits.residual.cells = limits.attention; // which bound the number of prefixes
    limits.residual.cells->cells = (given.texts + given.snapshots) * limits.residual.window.retention + given.batch;
    limits.states = {.rollback = options.rollback, .snapshots = given.snapshots};
    return limits;
}

template <class T>
T value_of(cellar::models::ModelResult<T> result) {
    if (!result) throw std::runtime_error{result.error().message};
    return *std::move(result);
}

/// A row of the table in memory.cpp.
template <class Memory>
constexpr MemoryType memory_type(Way way, const char* format, bool residual = false) {
    using Hybrid = typename Memory::Hybrid;
    return {way,
            format,
            residual,
            [](const Shape& shape, const MemoryOptions& options) -> std::unique_ptr<engine::Memory> {
                return std::make_unique<Memory>(shape, options);
            },
            [](const Shape& shape, const MemoryOptions& options) {
                return value_of(cellar::models::bytes<Hybrid>(shape.memory, memory_limits(shape, options))).total();
            },
            [](const Shape& shape, MemoryOptions options, std::int64_t bytes) {
                const auto limits_of = [&](int cells) {
                    options.limits.cells = cells;
                    return memory_limits(shape, options);
                };
                return value_of(cellar::models::largest_limits<Hybrid>(shape.memory, limits_of, bytes)).attention.cells;
            }};
}

/// See `Memory::fill`.
template <class Hybrid>
void fill_randomly(Hybrid& hybrid, const Shape& shape, int batch, int text, int tokens) {
    std::mt19937 random{static_cast<std::mt19937::result_type>(text)};
    std::vector<float> rows;
    for (int count = 0; tokens > 0; tokens -= count) {
        count = std::min(tokens, batch);
        std::size_t most = 0;
        for (const LayerDescription& layer : shape.memory.layers)
            most = std::max(most, static_cast<std::size_t>(layer.shape.kv_heads
                                                           * std::max(layer.shape.key_dim, layer.shape.value_dim)));
        rows.resize(static_cast<std::size_t>(count) * most);
        for (float& value : rows) value = static_cast<float>(random() % 4096) / 2048 - 1;
        const cellar::Sequence s{text};
        auto pass = hybrid.begin(s, count);
        if (!pass) throw std::runtime_error{"the memory refused to be filled: " + to_string(pass.error())};
        for (int layer = 0; layer < pass->layers(); ++layer)
            pass->visit(layer, [&](auto& own, int index) {
                if constexpr (requires { own.mark_put(index); }) own.put(index, rows, rows);
            });
        pass->commit();
    }
}

} // namespace engine
