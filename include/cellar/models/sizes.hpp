// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cache/sizes.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/models/description.hpp>
#include <cellar/models/detail/state_extents.hpp>
#include <cellar/models/memory_limits.hpp>
#include <cellar/models/run_time_description.hpp>
#include <cellar/recurrent/sizes.hpp>
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/sliding_window.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// How many bytes the memory of a model takes, before it is made, and how much fits into a number of bytes. The sizes
// are those of keys and values in `Layout`, and of states of `State` elements.

namespace cellar::models {

/// Bytes that every token of a sequence adds permanently: those of the full layers.
template <LayoutPolicy Layout = StandardV<bf16>>
constexpr std::int64_t bytes_per_token(const Description& model) {
    return model.count(LayerKind::full) * layer_bytes<Layout>(model.full.shape, 1);
}

/// Bytes of a sequence that do not grow with its length: full windows, and recurrent states.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
constexpr std::int64_t bytes_per_sequence(const Description& model) {
    return model.count(LayerKind::sliding) * layer_bytes<Layout>(model.sliding.shape, model.sliding.window)
           + model.count(LayerKind::recurrent) * model.state_elements() * std::int64_t{sizeof(State)};
}

/// The value of `bytes` of a model's memories with these limits, without making them.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
constexpr std::int64_t bytes(const Description& model, const MemoryLimits& limits) {
    std::int64_t sum = 0;
    if (const int layers = model.count(LayerKind::full); layers != 0)
        sum += layers * layer_bytes<Layout>(model.full.shape, cellar::detail::cells_for<Layout>(limits.attention));
    if (const int layers = model.count(LayerKind::sliding); layers != 0) {
        const auto window = detail::WindowFor<SlidingWindow<>>::make(model.sliding.window, limits.window);
        const CacheLimits own = detail::limits_of(LayerKind::sliding, limits);
        sum += layers * layer_bytes<Layout>(model.sliding.shape, cellar::detail::cells_for<Layout>(own, window));
    }
    if (const int layers = model.count(LayerKind::recurrent); layers != 0) {
        const StateLimits own = detail::state_limits_of(limits);
        for (int i = 0; i < model.states(); ++i)
            sum += cellar::detail::tensor_bytes<State>(detail::extents_of(model.state[i]), layers, own);
    }
    return sum;
}

namespace detail {

/// The bytes of one layer with attention.
template <LayoutPolicy Layout>
std::int64_t layer_bytes(const LayerDescription& layer, const MemoryLimits& limits) {
    const CacheLimits own = limits_of(layer.kind, limits);
    const auto with = [&](const auto& window) {
        return cellar::layer_bytes<Layout>(layer.shape, cellar::detail::cells_for<Layout>(own, window));
    };
    if (layer.kind == LayerKind::sliding) return with(WindowFor<SlidingWindow<>>::make(layer.window, limits.window));
    if (layer.kind == LayerKind::chunked) return with(WindowFor<ChunkedAttention<>>::make(layer.window, limits.window));
    return with(FullCausal{});
}

/// Limits with so many cells: `limits` is a function that gives them, or limits whose `attention.cells` are changed.
template <class Limits>
MemoryLimits with_cells(const Limits& limits, std::int32_t cells) {
    if constexpr (std::invocable<const Limits&, std::int32_t>) {
        return limits(cells);
    } else {
        MemoryLimits found = limits;
        found.attention.cells = cells;
        return found;
    }
}

/// With the most cells with which `bytes_of(limits)` is at most `most`, if one fits; never more than 2^30.
template <class Limits, class BytesOf>
std::optional<MemoryLimits> largest_limits(const Limits& limits, std::int64_t most, BytesOf bytes_of) {
    const auto fits = [&](std::int32_t cells) { return bytes_of(with_cells(limits, cells)) <= most; };
    if (!fits(1)) return std::nullopt;
    std::int32_t cells = 1;
    for (std::int32_t step = 1 << 29; step > 0; step /= 2)
        if (fits(cells + step)) cells += step;
    return with_cells(limits, cells);
}

} // namespace detail

/// The same for a model that is known at run time: the value of `bytes` of a hybrid that has one member for each width
/// of a window, one for the full layers and one for all states. `check(model)` must hold. Encoders' layers count as
/// nothing: their inputs are not the model's tokens.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
std::int64_t bytes(const RunTimeDescription& model, const MemoryLimits& limits) {
    std::int64_t sum = 0;
    const StateLimits states = detail::state_limits_of(limits);
    std::vector<std::int64_t> rows; // the largest of each tensor, gathered for one layer at a time
    for (const LayerDescription& layer : model.layers) {
        if (layer.kind == LayerKind::nothing || layer.kind == LayerKind::encoder) continue;
        if (layer.kind != LayerKind::recurrent) {
            if (layer.shape.shares_layer < 0) sum += detail::layer_bytes<Layout>(layer, limits);
            continue;
        }
        rows.resize(std::max(rows.size(), layer.state.size()));
        for (std::size_t i = 0; i < layer.state.size(); ++i) {
            const cellar::StateExtents extents = detail::extents_of(layer.state[i]);
            sum += cellar::detail::slot_count(states) * cellar::detail::row_bytes<State>(extents);
            rows[i] = std::max(rows[i], extents.elements());
        }
    }
    for (const std::int64_t elements : rows) sum += elements * states.sequences * std::int64_t{sizeof(State)};
    return sum;
}

/// The same limits with as many cells (`limits.attention.cells`, whatever it was) as fit into `most` bytes; never more
/// than 2^30. None if not even one fits. `model`: a `Description` or a `RunTimeDescription`.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float, class AnyDescription>
std::optional<MemoryLimits> largest_limits(const AnyDescription& model, const MemoryLimits& limits, std::int64_t most) {
    return detail::largest_limits(limits, most,
                                  [&](const MemoryLimits& some) { return bytes<Layout, State>(model, some); });
}

} // namespace cellar::models
