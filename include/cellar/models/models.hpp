// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/hybrid/hybrid.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/models/description.hpp>
#include <cellar/models/detail/state_extents.hpp>
#include <cellar/models/memory_limits.hpp>
#include <cellar/models/published.hpp>
#include <cellar/models/sizes.hpp>
#include <cellar/recurrent/recurrent_memory.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/unrotated_shift.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

/// Published models (docs/models.md): what each layer stores, the memory types, and their sizes.
namespace cellar::models {

namespace detail {

// Templates take the `Model` type, because g++ 16 does not pass a reference on from one template to another.

template <class Model, LayerKind Kind>
using WindowOf =
    std::conditional_t<Kind == LayerKind::sliding, SlidingWindow<Model::describe().sliding.window>, FullCausal>;

template <Pairing Kind>
using ShiftBy =
    std::conditional_t<Kind == Pairing::none, UnrotatedShift,
                       std::conditional_t<Kind == Pairing::interleaved, RopeShift<Interleaved>, RopeShift<Neox>>>;
template <class Model, LayerKind Kind>
using ShiftOf =
    ShiftBy<Kind == LayerKind::sliding ? Model::describe().sliding.rope.pairing : Model::describe().full.rope.pairing>;

/// The tag of one tensor of the model's recurrent state.
template <class Model, int I, Element E>
struct State : StateTensor<Model::describe().state[I].rank(), E> {};

template <class Model, BackendPolicy Backend, Element E, int... I>
RecurrentMemory<States<State<Model, I, E>...>, Backend> recurrent(std::integer_sequence<int, I...>);
template <class Model, BackendPolicy Backend, Element E>
using RecurrentOf =
    decltype(recurrent<Model, Backend, E>(std::make_integer_sequence<int, Model::describe().states()>{}));

/// The memory of the layers of one kind.
template <class Model, LayerKind Kind, BackendPolicy Backend, LayoutPolicy Layout>
struct OfKind {
    using type = Cache<Layout, WindowOf<Model, Kind>, ShiftOf<Model, Kind>, Backend>;
};
template <class Model, BackendPolicy Backend, LayoutPolicy Layout>
struct OfKind<Model, LayerKind::recurrent, Backend, Layout> {
    using type = RecurrentOf<Model, Backend, float>;
};
template <class Model, BackendPolicy Backend, LayoutPolicy Layout>
struct OfKind<Model, LayerKind::nothing, Backend, Layout> {
    using type = NoMemory;
};

template <LayerKind... Kinds>
struct KindList {};
template <LayerKind... A, LayerKind... B>
KindList<A..., B...> operator+(KindList<A...>, KindList<B...>);

/// The kinds of memory that a model has.
template <class Model, LayerKind Kind>
using IfPresent = std::conditional_t<(Model::describe().count(Kind) > 0), KindList<Kind>, KindList<>>;
template <class Model>
using KindsOf = decltype(IfPresent<Model, LayerKind::sliding>{} + IfPresent<Model, LayerKind::full>{}
                         + IfPresent<Model, LayerKind::recurrent>{});

template <class Model>
inline constexpr bool is_one_kind = Model::describe().count(Model::describe().kind(0)) == Model::describe().layers;

template <class Model, BackendPolicy Backend, LayoutPolicy Layout, LayerKind... Kinds, int... I>
auto whole(KindList<Kinds...>, std::integer_sequence<int, I...>) {
    using Pattern = Repeat<typename OfKind<Model, Model::describe().kind(I), Backend, Layout>::type...>;
    return std::type_identity<Hybrid<Pattern, typename OfKind<Model, Kinds, Backend, Layout>::type...>>{};
}

/// The memory of all layers: a hybrid, or the memory of the only kind.
template <class Model, BackendPolicy Backend, LayoutPolicy Layout>
struct Whole : decltype(whole<Model, Backend, Layout>(
                   KindsOf<Model>{}, std::make_integer_sequence<int, Model::describe().pattern.size()>{})) {};
template <class Model, BackendPolicy Backend, LayoutPolicy Layout>
    requires(is_one_kind<Model>)
struct Whole<Model, Backend, Layout> : OfKind<Model, Model::describe().kind(0), Backend, Layout> {};

} // namespace detail

/// The memory types of a model, and functions that make them. Layers of one kind share one memory, in which layer i of
/// the model is layer `description.count(kind, i)`.
template <const Description& TheModel>
struct Model {
    static_assert(TheModel.count(LayerKind::chunked) + TheModel.count(LayerKind::encoder) == 0,
                  "Model: its pattern has a kind of layers that only a RunTimeDescription may have");
    static constexpr const Description& description = TheModel;
    /// The same as a function: nvcc accepts no constant from a class that is not complete yet.
    static constexpr const Description& describe() { return TheModel; }

    template <LayerKind Kind>
    using Window = detail::WindowOf<Model, Kind>;
    template <LayerKind Kind>
    using Shift = detail::ShiftOf<Model, Kind>;

    /// The memory of all layers of a kind with attention.
    template <LayerKind Kind, BackendPolicy Backend = HostBackend, LayoutPolicy Layout = StandardV<bf16>>
        requires(TheModel.count(Kind) > 0)
    using Attending = Cache<Layout, Window<Kind>, Shift<Kind>, Backend>;

    template <BackendPolicy Backend = HostBackend, LayoutPolicy Layout = StandardV<bf16>>
    using Sliding = Attending<LayerKind::sliding, Backend, Layout>;
    template <BackendPolicy Backend = HostBackend, LayoutPolicy Layout = StandardV<bf16>>
    using Full = Attending<LayerKind::full, Backend, Layout>;

    /// The tag of tensor I of the recurrent state, in the order of the description.
    template <int I, Element E = float>
        requires(I < TheModel.states())
    using State = detail::State<Model, I, E>;

    /// The memory of all recurrent layers.
    template <BackendPolicy Backend = HostBackend, Element E = float>
        requires(TheModel.count(LayerKind::recurrent) > 0)
    using Recurrent = detail::RecurrentOf<Model, Backend, E>;

    /// The memory of all layers: a `Hybrid` of the kinds that the model has, in the order sliding, full, recurrent; or,
    /// if there is only one kind, its memory.
    template <BackendPolicy Backend = HostBackend, LayoutPolicy Layout = StandardV<bf16>>
    using Memory = typename detail::Whole<Model, Backend, Layout>::type;

    /// The layers of a kind with attention, for the constructor of their memory.
    template <LayerKind Kind>
    static CacheShape shape() {
        const LayerShape& layer = TheModel.attention(Kind).shape;
        return {.layers = TheModel.count(Kind),
                .kv_heads = layer.kv_heads,
                .head_dim = layer.key_dim,
                .value_dim = layer.value_dim};
    }

    /// The recurrent layers, for the constructor of their memory. Allocates.
    static StateShape state_shape() {
        std::vector<cellar::StateExtents> tensors;
        tensors.reserve(static_cast<std::size_t>(TheModel.states()));
        for (int i = 0; i < TheModel.states(); ++i) tensors.push_back(detail::extents_of(TheModel.state[i]));
        return StateShape{std::vector<std::vector<cellar::StateExtents>>(
            static_cast<std::size_t>(TheModel.count(LayerKind::recurrent)), tensors)};
    }

    /// How the keys of a kind are rotated when their tokens move, with the model's frequencies.
    template <LayerKind Kind>
    static Shift<Kind> shift() {
        constexpr const Rope& rope = TheModel.attention(Kind).rope;
        if constexpr (rope.pairing == Pairing::none) {
            return {};
        } else {
            return Shift<Kind>{frequencies(rope), rope.begin};
        }
    }

    /// Throws `std::bad_alloc` if there is not enough memory.
    template <LayerKind Kind, BackendPolicy Backend = HostBackend, LayoutPolicy Layout = StandardV<bf16>>
    static Attending<Kind, Backend, Layout> make(const CacheLimits& limits, const Window<Kind>& window = Window<Kind>{},
                                                 Backend backend = Backend{}, Where where = Where::current()) {
        return {shape<Kind>(), limits, window, shift<Kind>(), std::move(backend), where};
    }
    /// Makes a `Recurrent<Backend, E>`. The return type is deduced, because nvcc does not find the function otherwise.
    template <BackendPolicy Backend = HostBackend, Element E = float>
        requires(TheModel.count(LayerKind::recurrent) > 0)
    static auto make_recurrent(const StateLimits& limits, Backend backend = Backend{}, Where where = Where::current()) {
        return Recurrent<Backend, E>{state_shape(), limits, std::move(backend), where};
    }

    /// Makes the memory of all layers. Each member gets a default-constructed backend.
    template <BackendPolicy Backend = HostBackend, LayoutPolicy Layout = StandardV<bf16>>
    static Memory<Backend, Layout> make(const MemoryLimits& limits, Where where = Where::current()) {
        const cellar::detail::Caller caller{where};
        return make_whole<Backend, Layout>(limits, detail::KindsOf<Model>{});
    }

private:
    template <LayerKind Kind, class Backend, class Layout>
    static auto make_one(const MemoryLimits& limits) {
        using One = typename detail::OfKind<Model, Kind, Backend, Layout>::type;
        if constexpr (Kind == LayerKind::recurrent) {
            return One{state_shape(), detail::state_limits_of(limits)};
        } else {
            const auto window = detail::WindowFor<Window<Kind>>::make(TheModel.attention(Kind).window, limits.window);
            return One{shape<Kind>(), detail::limits_of(Kind, limits), window, shift<Kind>()};
        }
    }

    template <class Backend, class Layout, LayerKind... Kinds>
    static Memory<Backend, Layout> make_whole(const MemoryLimits& limits, detail::KindList<Kinds...>) {
        if constexpr (detail::is_one_kind<Model>) {
            return make_one<TheModel.kind(0), Backend, Layout>(limits);
        } else {
            return Memory<Backend, Layout>{TheModel.layers, make_one<Kinds, Backend, Layout>(limits)...};
        }
    }
};

using Llama31_8B = Model<llama31_8b>;
using Llama31_70B = Model<llama31_70b>;
using Mistral_7B = Model<mistral_7b>;
using Qwen3_8B = Model<qwen3_8b>;
using Phi4 = Model<phi4>;
using DeepSeekV3 = Model<deepseek_v3>;
using Gemma2_9B = Model<gemma2_9b>;
using Gemma3_4B = Model<gemma3_4b>;
using Gemma3_12B = Model<gemma3_12b>;
using GptOss_20B = Model<gpt_oss_20b>;
using GptOss_120B = Model<gpt_oss_120b>;
using Mamba2_2_7B = Model<mamba2_2_7b>;
using Rwkv7_2_9B = Model<rwkv7_2_9b>;
using Qwen3Next_80B = Model<qwen3_next_80b>;
using Jamba15Mini = Model<jamba15_mini>;
using NemotronH_8B = Model<nemotron_h_8b>;
using Granite4HTiny = Model<granite4_h_tiny>;
using Lfm2_1_2B = Model<lfm2_1_2b>;

/// A list of models, as a type: for code that runs over all of them.
template <class... Models>
struct ModelList {};

/// All models of this header.
using All = ModelList<Llama31_8B, Llama31_70B, Mistral_7B, Qwen3_8B, Phi4, DeepSeekV3, Gemma2_9B, Gemma3_4B, Gemma3_12B,
                      GptOss_20B, GptOss_120B, Qwen3Next_80B, Jamba15Mini, NemotronH_8B, Granite4HTiny, Lfm2_1_2B,
                      Mamba2_2_7B, Rwkv7_2_9B>;

} // namespace cellar::models
