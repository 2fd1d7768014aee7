// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/encoder_memory.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/hybrid/hybrid.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/layout/channel_factors.hpp>
#include <cellar/models/detail/state_extents.hpp>
#include <cellar/models/memory_limits.hpp>
#include <cellar/models/run_time_description.hpp>
#include <cellar/recurrent/recurrent_memory.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/rotate_on_read.hpp>
#include <cellar/shift/shift.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::models {

/// The layers of one member. Here, `shares_layer` is the index of a layer of the member.
using MemberLayers = std::vector<LayerDescription>;

/// How a type of memory takes layers of a description: it is defined for every `Cache` whose window is `FullCausal`,
/// `SlidingWindow` or `ChunkedAttention`, every `Hybrid<WithResidual, ...>` of two such caches, the second of which has
/// a `SlidingWindow<>`, every `EncoderMemory` and every `RecurrentMemory`. Specialise it for a memory of your own, with
/// these static functions:
///
/// - `bool takes(const LayerDescription&)`: whether the type can be the memory of such a layer.
/// - `ModelResult<void> check(const MemberLayers&)`: refuses layers that it takes, if one object cannot have them all.
/// - `MemoryBytes bytes(const MemberLayers&, const MemoryLimits&)`: what `make(...)` takes.
/// - `M make(const MemberLayers&, const MemoryLimits&)`.
template <class M>
struct MemberFor;

namespace detail {

/// The layers of a model, divided between the members of its memory.
struct DividedLayers {
    std::vector<MemberLayers> members{};
    std::vector<int> member_of_layer{}; ///< or `no_memory`
    std::vector<int> index_in_member{}; ///< of each layer

    /// The next layer of the model goes to a member, or to none.
    constexpr void add(LayerDescription layer, int member) {
        member_of_layer.push_back(member);
        index_in_member.push_back(0);
        if (member == no_memory) return;
        MemberLayers& own = members[static_cast<std::size_t>(member)];
        if (const int owner = layer.owner(); owner >= 0)
            layer.shape.shares_layer = index_in_member[static_cast<std::size_t>(owner)];
        index_in_member.back() = static_cast<int>(own.size());
        own.push_back(std::move(layer));
    }
};

/// Which keys a shift rotates, and that shift with the frequencies of layers.
template <class Shift>
struct ShiftFor { // one that rotates no key
    static bool takes(Pairing pairing) { return !Shift::possible || pairing == Pairing::none; }
    static Shift make(const MemberLayers&, std::int32_t) { return {}; }
};
template <class Pairs>
struct ShiftFor<RopeShift<Pairs>> {
    static bool takes(Pairing pairing) {
        if (std::is_same_v<Pairs, Neox>) return pairing != Pairing::interleaved;
        if (std::is_same_v<Pairs, Interleaved>) return pairing != Pairing::neox;
        return true;
    }

    static RopeShift<Pairs> make(const MemberLayers& layers, std::int32_t context) {
        std::vector<std::vector<double>> all;
        const LayerDescription* rotated = &layers.front();
        for (const LayerDescription& layer : layers) {
            all.push_back(frequencies(layer.rope, context));
            if (!all.back().empty()) rotated = &layer;
        }
        if constexpr (std::is_same_v<Pairs, RunTimePairing>) {
            const bool interleaved = rotated->rope.pairing == Pairing::interleaved;
            return RopeShift<Pairs>::per_layer(std::move(all), {interleaved}, rotated->rope.begin);
        } else {
            return RopeShift<Pairs>::per_layer(std::move(all), rotated->rope.begin);
        }
    }
};

template <class Pairs>
struct ShiftFor<RotateOnRead<Pairs>> : ShiftFor<RopeShift<Pairs>> {
    static RotateOnRead<Pairs> make(const MemberLayers& layers, std::int32_t context) {
        return ShiftFor<RopeShift<Pairs>>::make(layers, context);
    }
};

/// Refuses layers that cannot have one shift.
inline ModelResult<void> check_rotations(const MemberLayers& layers) {
    const RunTimeRope* first = nullptr;
    for (const LayerDescription& layer : layers) {
        const RunTimeRope& rope = layer.rope;
        if (rope.pairing == Pairing::none) continue;
        if (first == nullptr) first = &rope;
        if (rope.pairing != first->pairing || rope.begin != first->begin)
            return ModelError{"its layers have different rotary pairs, or begin them at different elements"};
    }
    return {};
}

constexpr CacheShape cache_shape(const MemberLayers& layers) {
    CacheShape shape;
    bool has_factors = false;
    for (const LayerDescription& layer : layers) {
        shape.each_layer.push_back(layer.shape);
        shape.factors.push_back(layer.factors);
        has_factors = has_factors || !layer.factors.keys.empty() || !layer.factors.values.empty();
    }
    if (!has_factors) shape.factors.clear();
    return shape;
}

/// Formats of fewer bits alone are divided by factors, by a backend that has data.
template <class Layout, class Backend>
bool takes_factors(const ChannelFactors& factors) {
    return (factors.keys.empty() || (!HoldsNoData<Backend> && !Element<typename Layout::key_format>))
           && (factors.values.empty() || (!HoldsNoData<Backend> && !Element<typename Layout::value_format>));
}

// Not in the template below, because nvcc writes such lists wrongly there.
inline ModelError unequal_factors(int first, int second) {
    return model_error(
        {"elements ", first, " and ", second, " of its keys are rotated as a pair, and have different factors"});
}

/// Refuses factors of layers that do not go with a shift.
template <class Shift>
ModelResult<void> check_factors(const MemberLayers& layers) {
    const Shift shift = ShiftFor<Shift>::make(layers, 0);
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].shape.shares_layer >= 0) continue;
        const auto unequal = cellar::detail::unequal_pair(layers[i].factors.keys, layers[i].shape.key_dim,
                                                          shift.rotation(static_cast<int>(i)));
        if (unequal.first != unequal.second) return unequal_factors(unequal.first, unequal.second);
    }
    return {};
}

template <class Format>
bool fits_format(int dim) {
    if constexpr (Element<Format>) {
        return true;
    } else {
        constexpr int scale = cellar::detail::ScaleOf<Format>::values;
        return dim % cellar::detail::values_per_unit<Format> == 0 && (scale == whole_head || dim % scale == 0)
               && dim % cellar::detail::values_per_rotation<Format> == 0 && dim <= cellar::detail::max_encoded_dim;
    }
}

} // namespace detail

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
struct MemberFor<Cache<Layout, Window, Shift, Backend>> {
    using Memory = Cache<Layout, Window, Shift, Backend>;
    using WindowFor = detail::WindowFor<Window>;

    static bool takes(const LayerDescription& layer) {
        return layer.kind == WindowFor::kind && WindowFor::takes(layer.window)
               && detail::ShiftFor<Shift>::takes(layer.rope.pairing)
               && detail::fits_format<typename Layout::key_format>(layer.shape.key_dim)
               && detail::fits_format<typename Layout::value_format>(layer.shape.value_dim)
               && detail::takes_factors<Layout, Backend>(layer.factors);
    }

    static ModelResult<void> check(const MemberLayers& layers) {
        for (const LayerDescription& layer : layers)
            if (layer.window != layers.front().window) return ModelError{"its layers have windows of different widths"};
        if constexpr (rotates_keys<Shift> || rotates_on_read<Shift>) {
            const ModelResult<void> checked = detail::check_rotations(layers);
            return checked ? detail::check_factors<Shift>(layers) : checked;
        } else {
            return {};
        }
    }

    static constexpr MemoryBytes bytes(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory::bytes_for(detail::cache_shape(layers), detail::limits_of(WindowFor::kind, limits),
                                 window(layers, limits));
    }

    static Memory make(const MemberLayers& layers, const MemoryLimits& limits) {
        const std::int32_t context = cellar::detail::planned_capacity(limits.attention);
        return Memory{detail::cache_shape(layers), detail::limits_of(WindowFor::kind, limits), window(layers, limits),
                      detail::ShiftFor<Shift>::make(layers, context)};
    }

private:
    static constexpr Window window(const MemberLayers& layers, const MemoryLimits& limits) {
        return WindowFor::make(layers.front().window, limits.window);
    }
};

/// Full and sliding layers that the coarse cache takes. (A residual would show a chunk what lies before it.) Channels
/// of the exact cache have no factors.
template <class Coarse, class Exact>
struct MemberFor<Hybrid<WithResidual, Coarse, Exact>> {
    using Memory = Hybrid<WithResidual, Coarse, Exact>;

    static bool takes(const LayerDescription& layer) {
        LayerDescription of_exact = exact(layer, layer.window);
        if (of_exact.window == 0) of_exact.window = 1; // any
        return layer.kind != LayerKind::chunked && MemberFor<Coarse>::takes(layer) && MemberFor<Exact>::takes(of_exact);
    }

    static ModelResult<void> check(const MemberLayers& layers) { return MemberFor<Coarse>::check(layers); }

    static MemoryBytes bytes(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory::bytes_for(static_cast<int>(layers.size()), MemberFor<Coarse>::bytes(layers, limits),
                                 MemberFor<Exact>::bytes(exact(layers, limits), limits_of_exact(layers, limits)));
    }

    static Memory make(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory{static_cast<int>(layers.size()), MemberFor<Coarse>::make(layers, limits),
                      MemberFor<Exact>::make(exact(layers, limits), limits_of_exact(layers, limits))};
    }

private:
    static LayerDescription exact(LayerDescription layer, std::int32_t window) {
        layer.kind = LayerKind::sliding;
        layer.window = window;
        layer.factors = {};
        return layer;
    }
    static MemberLayers exact(MemberLayers layers, const MemoryLimits& limits) {
        for (LayerDescription& layer : layers) layer = exact(layer, width(layer, limits));
        return layers;
    }
    static std::int32_t width(const LayerDescription& layer, const MemoryLimits& limits) {
        const std::int32_t tokens = limits.residual.tokens;
        return layer.window == 0 ? tokens : std::min(layer.window, tokens);
    }
    static MemoryLimits limits_of_exact(const MemberLayers& layers, const MemoryLimits& limits) {
        const LayerDescription& layer = layers.front(); // all have the same window
        MemoryLimits found = detail::limits_of_residual(limits, layer.window != 0);
        if (limits.residual.cells || limits.residual.snapshots == 0) return found;
        using Window = typename Exact::window_type;
        CacheLimits& own = *found.sliding;
        const Window window =
            cellar::detail::resolved_window(own, detail::WindowFor<Window>::make(width(layer, limits), found.window));
        const std::int64_t cells = window.cells(own.sequences + limits.residual.snapshots, own.capacity, own.batch);
        own.cells = static_cast<std::int32_t>(std::min(cells, std::int64_t{INT32_MAX}));
        return found;
    }
};

template <LayoutPolicy Layout, BackendPolicy Backend>
struct MemberFor<EncoderMemory<Layout, Backend>> {
    using Memory = EncoderMemory<Layout, Backend>;

    static bool takes(const LayerDescription& layer) {
        return layer.kind == LayerKind::encoder && layer.rope.pairing == Pairing::none
               && detail::fits_format<typename Layout::key_format>(layer.shape.key_dim)
               && detail::fits_format<typename Layout::value_format>(layer.shape.value_dim)
               && detail::takes_factors<Layout, Backend>(layer.factors);
    }

    static ModelResult<void> check(const MemberLayers&) { return {}; }

    static MemoryBytes bytes(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory::bytes_for(detail::cache_shape(layers), detail::limits_of(LayerKind::encoder, limits));
    }

    static Memory make(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory{detail::cache_shape(layers), detail::limits_of(LayerKind::encoder, limits)};
    }
};

template <StateTag... Tags, BackendPolicy Backend>
struct MemberFor<RecurrentMemory<States<Tags...>, Backend>> {
    using Memory = RecurrentMemory<States<Tags...>, Backend>;

    /// A state has the tensors of the tags, in their order, each of the tag's rank.
    static bool takes(const LayerDescription& layer) {
        if (layer.kind != LayerKind::recurrent || layer.state.size() != sizeof...(Tags)) return false;
        std::size_t tensor = 0;
        return ((layer.state[tensor++].rank() == Tags::rank) && ...);
    }

    static ModelResult<void> check(const MemberLayers&) { return {}; }

    static constexpr MemoryBytes bytes(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory::bytes_for(shape(layers), detail::state_limits_of(limits));
    }

    static Memory make(const MemberLayers& layers, const MemoryLimits& limits) {
        return Memory{shape(layers), detail::state_limits_of(limits)};
    }

private:
    static constexpr StateShape shape(const MemberLayers& layers) {
        std::vector<std::vector<StateExtents>> all;
        for (const LayerDescription& layer : layers) {
            std::vector<StateExtents> tensors;
            tensors.reserve(layer.state.size());
            for (const StateDescription& tensor : layer.state) tensors.push_back(detail::extents_of(tensor));
            all.push_back(std::move(tensors));
        }
        return StateShape{std::move(all)};
    }
};

} // namespace cellar::models
