// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/cache.hpp>
#include <cellar/models/attention.hpp>
#include <cellar/models/description.hpp>
#include <cellar/models/recurrent.hpp>
#include <cellar/models/windowed.hpp>
#include <cellar/shift/no_shift.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/sizes.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

/// Published models, as they stand in docs/models.md: what they remember, the types that do it, and what that costs.
namespace cellar::models {

namespace detail {

template <Pairing Kind>
using ShiftOf =
    std::conditional_t<Kind == Pairing::none, NoShift,
                       std::conditional_t<Kind == Pairing::interleaved, RopeShift<Interleaved>, RopeShift<Neox>>>;

} // namespace detail

/// Bytes that each token of a sequence adds for good: those of the full layers.
template <layout_policy Layout = StandardV<bf16>>
constexpr std::int64_t bytes_per_token(const Description& model) {
    return model.count(LayerKind::full) * layer_bytes<Layout>(model.full.shape, 1);
}

/// Bytes of a sequence that do not grow with it: its windows, filled, and its state.
template <layout_policy Layout = StandardV<bf16>, element State = float>
constexpr std::int64_t bytes_per_sequence(const Description& model) {
    return model.count(LayerKind::sliding) * layer_bytes<Layout>(model.sliding.shape, model.sliding.window)
           + model.count(LayerKind::recurrent) * model.state_elements() * std::int64_t{sizeof(State)};
}

/// All bytes of keys, values and states in memories of these limits. On top of the above: room for a batch beside each
/// window, and a second state for each sequence in a batch, because a pass writes beside what it reads (no rollback, no
/// checkpoints).
template <layout_policy Layout = StandardV<bf16>, element State = float>
constexpr std::int64_t total_bytes(const Description& model, const Limits& limits) {
    const std::int64_t states = limits.sequences + std::min(limits.batch, limits.sequences);
    std::int64_t sum =
        states * model.count(LayerKind::recurrent) * model.state_elements() * std::int64_t{sizeof(State)};
    if (const int layers = model.count(LayerKind::full); layers != 0)
        sum += cache_bytes<Layout>(layers, model.full.shape, limits);
    if (const int layers = model.count(LayerKind::sliding); layers != 0)
        sum += cache_bytes<Layout>(layers, model.sliding.shape, limits, SlidingWindow<>{model.sliding.window});
    return sum;
}

/// The types of a model's memories and how to make them. Layers of one kind share one memory; layer i of the model is
/// layer `description.count(kind, i)` in it.
template <const Description& TheModel>
struct Model {
    static constexpr const Description& description = TheModel;

    template <LayerKind Kind>
    using Window =
        std::conditional_t<Kind == LayerKind::sliding, SlidingWindow<TheModel.attention(Kind).window>, FullCausal>;
    template <LayerKind Kind>
    using Shift = detail::ShiftOf<TheModel.attention(Kind).rope.pairing>;

    /// The memory of all layers of a kind that attends.
    template <LayerKind Kind, backend Backend = HostBackend, layout_policy Layout = StandardV<bf16>>
        requires(TheModel.count(Kind) > 0)
    using Attending = Cache<Layout, Window<Kind>, Shift<Kind>, Backend>;

    template <backend Backend = HostBackend, layout_policy Layout = StandardV<bf16>>
    using Sliding = Attending<LayerKind::sliding, Backend, Layout>;
    template <backend Backend = HostBackend, layout_policy Layout = StandardV<bf16>>
    using Full = Attending<LayerKind::full, Backend, Layout>;

    /// The whole memory of a model with one kind of layers.
    template <backend Backend = HostBackend, layout_policy Layout = StandardV<bf16>>
        requires(TheModel.is_only(LayerKind::sliding) || TheModel.is_only(LayerKind::full))
    using Memory =
        Attending<TheModel.is_only(LayerKind::sliding) ? LayerKind::sliding : LayerKind::full, Backend, Layout>;

    template <LayerKind Kind>
    static Shape shape() {
        const LayerShape& layer = TheModel.attention(Kind).shape;
        return {TheModel.count(Kind), layer.kv_heads, layer.key_dim, layer.value_dim};
    }

    template <LayerKind Kind>
    static Shift<Kind> shift() {
        constexpr const Rope& rope = TheModel.attention(Kind).rope;
        if constexpr (rope.pairing == Pairing::none) {
            return {};
        } else {
            return Shift<Kind>{frequencies(rope), rope.begin};
        }
    }

    /// Throws `std::bad_alloc`, as caches do.
    template <LayerKind Kind, backend Backend = HostBackend, layout_policy Layout = StandardV<bf16>>
    static Attending<Kind, Backend, Layout> make(const Limits& limits, const Window<Kind>& window = Window<Kind>{},
                                                 Backend backend = Backend{}) {
        return {shape<Kind>(), limits, window, shift<Kind>(), std::move(backend)};
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
using Mamba2_27B = Model<mamba2_27b>;
using Rwkv7_29B = Model<rwkv7_29b>;
using Qwen3Next_80B = Model<qwen3_next_80b>;
using Jamba15Mini = Model<jamba15_mini>;
using NemotronH_8B = Model<nemotron_h_8b>;
using Granite4HTiny = Model<granite4_h_tiny>;
using Lfm2_12B = Model<lfm2_12b>;

template <class... Models>
struct ModelList {};

using All = ModelList<Llama31_8B, Llama31_70B, Mistral_7B, Qwen3_8B, Phi4, DeepSeekV3, Gemma2_9B, Gemma3_4B, Gemma3_12B,
                      GptOss_20B, GptOss_120B, Qwen3Next_80B, Jamba15Mini, NemotronH_8B, Granite4HTiny, Lfm2_12B,
                      Mamba2_27B, Rwkv7_29B>;

} // namespace cellar::models
