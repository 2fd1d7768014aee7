// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/sizes.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/models/description.hpp>
#include <cellar/models/member.hpp>
#include <cellar/models/memory_limits.hpp>
#include <cellar/models/run_time_description.hpp>
#include <cellar/recurrent/recurrent_memory.hpp>
#include <cellar/recurrent/state_shape.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/unrotated_shift.hpp>
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// How many bytes the memory of a model takes, before it is made, and how much fits into a number of bytes. Keys and
// values are in `Layout`, states have `State` elements, and memories have a `HostBackend`.

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

namespace detail {

/// Of layers of attention that are one member.
template <LayoutPolicy Layout, class Window>
constexpr MemoryBytes bytes_of_cache(const MemberLayers& layers, const MemoryLimits& limits) {
    const auto rotates = [](const LayerDescription& layer) { return layer.rope.pairing != Pairing::none; };
    return std::any_of(layers.begin(), layers.end(), rotates)
               ? MemberFor<Cache<Layout, Window, RopeShift<Neox>, HostBackend>>::bytes(layers, limits)
               : MemberFor<Cache<Layout, Window, UnrotatedShift, HostBackend>>::bytes(layers, limits);
}

constexpr int most_sized_tensors = 4; // of a state

/// One of several tensors of a state, as a row.
template <int I, Element E>
struct StateRow : StateTensor<1, E> {};

template <Element E, int... I>
constexpr MemoryBytes bytes_of_states(const MemberLayers& layers, const MemoryLimits& limits,
                                      std::integer_sequence<int, I...>) {
    return MemberFor<RecurrentMemory<States<StateRow<I, E>...>, HostBackend>>::bytes(layers, limits);
}

/// Of recurrent layers that are one member, with at least so many tensors.
template <Element E, int Tensors = 1>
constexpr MemoryBytes bytes_of_states(const MemberLayers& layers, const MemoryLimits& limits) {
    if constexpr (Tensors < most_sized_tensors)
        if (layers.front().state.size() > std::size_t{Tensors}) return bytes_of_states<E, Tensors + 1>(layers, limits);
    return bytes_of_states<E>(layers, limits, std::make_integer_sequence<int, Tensors>{});
}

template <LayoutPolicy Layout, Element State>
constexpr MemoryBytes bytes_of_member(const MemberLayers& layers, const MemoryLimits& limits) {
    switch (layers.front().kind) {
    case LayerKind::sliding:
        return bytes_of_cache<Layout, SlidingWindow<>>(layers, limits);
    case LayerKind::chunked:
        return bytes_of_cache<Layout, ChunkedAttention<>>(layers, limits);
    case LayerKind::recurrent:
        return bytes_of_states<State>(layers, limits);
    default:
        return bytes_of_cache<Layout, FullCausal>(layers, limits);
    }
}

template <LayoutPolicy Layout, Element State>
constexpr MemoryBytes bytes_of_members(const std::vector<MemberLayers>& members, const MemoryLimits& limits) {
    MemoryBytes sum;
    for (const MemberLayers& layers : members) sum += bytes_of_member<Layout, State>(layers, limits);
    return sum;
}

/// One member for each width of a window, one for the full layers, and one for each number of tensors of a state. The
/// tensors are rows, because their bytes do not depend on their rank.
constexpr std::vector<MemberLayers> sized_members(std::vector<LayerDescription> layers) {
    DividedLayers divided;
    for (LayerDescription& layer : layers) {
        layer.factors = {}; // they are not counted
        for (StateDescription& tensor : layer.state)
            tensor = {tensor.name, {static_cast<int>(std::min(tensor.elements(), std::int64_t{INT32_MAX}))}};
        const auto is_alike = [&](const MemberLayers& member) {
            const LayerDescription& first = member.front();
            return first.kind == layer.kind && first.window == layer.window && first.state.size() == layer.state.size();
        };
        const bool has_memory = layer.kind != LayerKind::nothing && layer.kind != LayerKind::encoder;
        const auto member = std::find_if(divided.members.begin(), divided.members.end(), is_alike);
        const auto index = static_cast<int>(member - divided.members.begin());
        if (has_memory && member == divided.members.end()) divided.members.emplace_back();
        divided.add(std::move(layer), has_memory ? index : no_memory);
    }
    return divided.members;
}

/// Refuses a description whose sizes cannot be told.
inline ModelResult<std::vector<MemberLayers>> sized_members(const RunTimeDescription& model) {
    if (const ModelResult<void> checked = check(model); !checked) return checked.error();
    for (std::size_t i = 0; i < model.layers.size(); ++i)
        if (const std::size_t n = model.layers[i].state.size();
            model.layers[i].kind == LayerKind::recurrent && n > most_sized_tensors)
            return model_error({"layer ", i, " has a state of ", n, " tensors, expected at most ", most_sized_tensors,
                                ", or sizes by the type of the memory"});
    return sized_members(model.layers);
}

} // namespace detail

/// What a model's memory takes that is made with these limits (`Model::make`), exactly, and before anything is
/// allocated: see `Cache::bytes_for`.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
constexpr MemoryBytes bytes(const Description& model, const MemoryLimits& limits) {
    return detail::bytes_of_members<Layout, State>(detail::sized_members(detail::layers_of(model)), limits);
}

/// The same for a model that is known at run time: of one memory for each width of a window, one for the full layers,
/// and one for all states. Encoders' layers count as nothing: their inputs are not the model's tokens. Refuses what
/// `check` refuses, and states of more than four tensors: `bytes<Memory>` (models/make_memory.hpp) takes any number.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
ModelResult<MemoryBytes> bytes(const RunTimeDescription& model, const MemoryLimits& limits) {
    const auto members = detail::sized_members(model);
    if (!members) return members.error();
    return detail::bytes_of_members<Layout, State>(*members, limits);
}

namespace detail {

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

/// With the most cells with which `bytes_of(limits)` is at most `most`; never more than 2^30.
template <class Limits, class BytesOf>
ModelResult<MemoryLimits> largest_limits(const Limits& limits, std::int64_t most, BytesOf bytes_of) {
    const std::int32_t cells =
        cellar::detail::most_cells(most, [&](std::int32_t some) { return bytes_of(with_cells(limits, some)).total(); });
    if (cells == 0) return ModelError{"not even one cell fits into " + std::to_string(most) + " bytes"};
    return with_cells(limits, cells);
}

} // namespace detail

/// The same limits with as many cells (`limits.attention.cells`, whatever it was) as fit into `most` bytes; never more
/// than 2^30. Refuses as `bytes` does, and if not even one cell fits.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
ModelResult<MemoryLimits> largest_limits(const RunTimeDescription& model, const MemoryLimits& limits,
                                         std::int64_t most) {
    const auto members = detail::sized_members(model);
    if (!members) return members.error();
    return detail::largest_limits(limits, most, [&](const MemoryLimits& some) {
        return detail::bytes_of_members<Layout, State>(*members, some);
    });
}

/// The same for a published model. None if it contradicts itself, or if not even one cell fits.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
std::optional<MemoryLimits> largest_limits(const Description& model, const MemoryLimits& limits, std::int64_t most) {
    const auto found = largest_limits<Layout, State>(at_run_time(model), limits, most);
    return found ? std::optional{*found} : std::nullopt;
}

} // namespace cellar::models
