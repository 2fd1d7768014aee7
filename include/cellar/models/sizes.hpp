// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/cache/sizes.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/models/description.hpp>
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
#include <type_traits>
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

/// Layers of attention that are one member.
template <LayoutPolicy Layout>
constexpr MemoryBytes bytes_of_cache(const CacheShape& shape, LayerKind kind, std::int32_t width, bool rotates,
                                     const MemoryLimits& limits) {
    const CacheLimits own = limits_of(kind, limits);
    const auto with = [&](const auto& window) {
        using Window = std::remove_cvref_t<decltype(window)>;
        return rotates ? Cache<Layout, Window, RopeShift<Neox>, HostBackend>::bytes_for(shape, own, window)
                       : Cache<Layout, Window, UnrotatedShift, HostBackend>::bytes_for(shape, own, window);
    };
    if (kind == LayerKind::sliding) return with(WindowFor<SlidingWindow<>>::make(width, limits.window));
    if (kind == LayerKind::chunked) return with(WindowFor<ChunkedAttention<>>::make(width, limits.window));
    return with(FullCausal{});
}

constexpr int most_sized_tensors = 4; // of a state

/// One of several tensors of a state, as a row.
template <int I, Element E>
struct StateRow : StateTensor<1, E> {};

template <Element E, int... I>
constexpr MemoryBytes bytes_of_states(const StateShape& rows, const MemoryLimits& limits,
                                      std::integer_sequence<int, I...>) {
    return RecurrentMemory<States<StateRow<I, E>...>, HostBackend>::bytes_for(rows, state_limits_of(limits));
}

/// Recurrent layers that are one member. `rows` has the elements of each tensor.
template <Element E>
constexpr MemoryBytes bytes_of_states(const StateShape& rows, const MemoryLimits& limits) {
    CELLAR_EXPECTS(rows.tensors() <= most_sized_tensors, "bytes: a state of ", rows.tensors(),
                   " tensors, expected at most ", most_sized_tensors);
    switch (rows.tensors()) {
    case 1:
        return bytes_of_states<E>(rows, limits, std::make_integer_sequence<int, 1>{});
    case 2:
        return bytes_of_states<E>(rows, limits, std::make_integer_sequence<int, 2>{});
    case 3:
        return bytes_of_states<E>(rows, limits, std::make_integer_sequence<int, 3>{});
    default:
        return bytes_of_states<E>(rows, limits, std::make_integer_sequence<int, 4>{});
    }
}

/// The layers of a model that are one member of its memory.
struct SizedMember {
    LayerKind kind;
    std::int32_t width;
    std::size_t tensors; ///< of a state
    bool rotates = false;
    CacheShape shape{};
    std::vector<std::vector<cellar::StateExtents>> states{};
};

/// One member for each width of a window, one for the full layers, and one for the states.
inline std::vector<SizedMember> sized_members(const RunTimeDescription& model) {
    std::vector<SizedMember> members;
    std::vector<int> index_in_member;
    for (const LayerDescription& layer : model.layers) {
        index_in_member.push_back(0);
        if (layer.kind == LayerKind::nothing || layer.kind == LayerKind::encoder) continue;
        auto member = std::find_if(members.begin(), members.end(), [&](const SizedMember& m) {
            return m.kind == layer.kind && m.width == layer.window && m.tensors == layer.state.size();
        });
        if (member == members.end())
            member = members.insert(member, {layer.kind, layer.window, layer.state.size(), false, {}, {}});
        if (layer.kind == LayerKind::recurrent) {
            std::vector<cellar::StateExtents>& rows = member->states.emplace_back();
            for (const StateDescription& tensor : layer.state) rows.push_back({tensor.elements()});
            continue;
        }
        LayerShape shape = layer.shape;
        if (shape.shares_layer >= 0) shape.shares_layer = index_in_member[static_cast<std::size_t>(shape.shares_layer)];
        index_in_member.back() = static_cast<int>(member->shape.each_layer.size());
        member->shape.each_layer.push_back(shape);
        member->rotates = member->rotates || layer.rope.pairing != Pairing::none;
    }
    return members;
}

/// Why the sizes of a description cannot be told; empty if they can.
inline std::string objection_to_sizes(const RunTimeDescription& model) {
    if (const ModelResult<void> checked = check(model); !checked) return checked.error().message;
    for (std::size_t i = 0; i < model.layers.size(); ++i)
        if (const std::size_t n = model.layers[i].state.size();
            model.layers[i].kind == LayerKind::recurrent && n > most_sized_tensors)
            return "layer " + std::to_string(i) + " has a state of " + std::to_string(n) + " tensors, expected at most "
                   + std::to_string(most_sized_tensors) + ", or sizes by the type of the memory";
    return {};
}

/// Of a description without an objection.
template <LayoutPolicy Layout, Element State>
MemoryBytes bytes_of(const RunTimeDescription& model, const MemoryLimits& limits) {
    MemoryBytes sum;
    for (SizedMember& member : sized_members(model))
        sum += member.kind == LayerKind::recurrent
                   ? bytes_of_states<State>(StateShape{std::move(member.states)}, limits)
                   : bytes_of_cache<Layout>(member.shape, member.kind, member.width, member.rotates, limits);
    return sum;
}

} // namespace detail

/// What a model's memory takes that is made with these limits (`Model::make`), exactly, and before anything is
/// allocated: see `Cache::bytes_for`.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
constexpr MemoryBytes bytes(const Description& model, const MemoryLimits& limits) {
    MemoryBytes sum;
    for (const LayerKind kind : {LayerKind::sliding, LayerKind::full}) {
        if (model.count(kind) == 0) continue;
        const Attention& layer = model.attention(kind);
        const CacheShape shape{.layers = model.count(kind),
                               .kv_heads = layer.shape.kv_heads,
                               .head_dim = layer.shape.key_dim,
                               .value_dim = layer.shape.value_dim};
        const bool rotates = layer.rope.pairing != Pairing::none;
        sum += detail::bytes_of_cache<Layout>(shape, kind, layer.window, rotates, limits);
    }
    if (const int layers = model.count(LayerKind::recurrent); layers != 0) {
        std::vector<cellar::StateExtents> rows;
        rows.reserve(static_cast<std::size_t>(model.states()));
        for (int i = 0; i < model.states(); ++i) rows.push_back({model.state[i].elements()});
        sum += detail::bytes_of_states<State>(
            StateShape{std::vector<std::vector<cellar::StateExtents>>(static_cast<std::size_t>(layers), rows)}, limits);
    }
    return sum;
}

/// The same for a model that is known at run time: of one memory for each width of a window, one for the full layers,
/// and one for all states. Encoders' layers count as nothing: their inputs are not the model's tokens. Refuses what
/// `check` refuses, and states of more than four tensors: `bytes<Memory>` (models/make_memory.hpp) takes any number.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
ModelResult<MemoryBytes> bytes(const RunTimeDescription& model, const MemoryLimits& limits) {
    if (std::string objection = detail::objection_to_sizes(model); !objection.empty())
        return ModelError{std::move(objection)};
    return detail::bytes_of<Layout, State>(model, limits);
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

/// With the most cells with which `bytes_of(limits)` is at most `most`, if one fits; never more than 2^30.
template <class Limits, class BytesOf>
std::optional<MemoryLimits> largest_limits(const Limits& limits, std::int64_t most, BytesOf bytes_of) {
    const std::int32_t cells =
        cellar::detail::most_cells(most, [&](std::int32_t some) { return bytes_of(with_cells(limits, some)); });
    if (cells == 0) return std::nullopt;
    return with_cells(limits, cells);
}

inline ModelResult<MemoryLimits> limits_or_error(const std::optional<MemoryLimits>& found, std::int64_t most) {
    if (found) return *found;
    return ModelError{"not even one cell fits into " + std::to_string(most) + " bytes"};
}

} // namespace detail

/// The same limits with as many cells (`limits.attention.cells`, whatever it was) as fit into `most` bytes; never more
/// than 2^30. None if not even one fits.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
std::optional<MemoryLimits> largest_limits(const Description& model, const MemoryLimits& limits, std::int64_t most) {
    return detail::largest_limits(limits, most,
                                  [&](const MemoryLimits& some) { return bytes<Layout, State>(model, some).total(); });
}

/// The same for a model that is known at run time. Refuses as `bytes` does, and if not even one cell fits.
template <LayoutPolicy Layout = StandardV<bf16>, Element State = float>
ModelResult<MemoryLimits> largest_limits(const RunTimeDescription& model, const MemoryLimits& limits,
                                         std::int64_t most) {
    if (std::string objection = detail::objection_to_sizes(model); !objection.empty())
        return ModelError{std::move(objection)};
    const auto bytes_of = [&](const MemoryLimits& some) {
        return detail::bytes_of<Layout, State>(model, some).total();
    };
    return detail::limits_or_error(detail::largest_limits(limits, most, bytes_of), most);
}

} // namespace cellar::models
