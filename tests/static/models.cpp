// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/eigen.hpp>
#include <cellar/models/models.hpp>

#include <type_traits>

using namespace cellar;
using namespace cellar::models;

namespace {

constexpr bool is_kind(LayerKind kind) {
    return kind == LayerKind::sliding || kind == LayerKind::full || kind == LayerKind::recurrent
           || kind == LayerKind::nothing;
}

constexpr bool has_known_kinds(const Description& model) {
    for (int layer = 0; layer < model.layers; ++layer)
        if (!is_kind(model.kind(layer))) return false;
    return true;
}

// A description has the parameters of a kind of layers if, and only if, its pattern has such layers.
constexpr bool is_complete(const Description& model) {
    return (model.count(LayerKind::sliding) > 0) == (model.sliding.window > 0)
           && (model.count(LayerKind::sliding) > 0) == (model.sliding.shape.key_dim > 0)
           && (model.count(LayerKind::full) > 0) == (model.full.shape.key_dim > 0) && model.full.window == 0
           && (model.count(LayerKind::recurrent) > 0) == (model.state_elements() > 0);
}

constexpr bool fits_its_head(const Attention& attention) {
    const Rope& rope = attention.rope;
    return rope.dims % 2 == 0 && rope.begin + rope.dims <= attention.shape.key_dim
           && (rope.pairing == Pairing::none) == (rope.dims == 0);
}

constexpr bool is_valid(const Description& model) {
    return !model.name.empty() && has_known_kinds(model) && is_complete(model) && fits_its_head(model.sliding)
           && fits_its_head(model.full);
}

template <class... Models>
constexpr bool all_valid(ModelList<Models...>) {
    return (is_valid(Models::description) && ...);
}
static_assert(all_valid(All{}));

constexpr bool counts(const Description& model, int sliding, int full, int recurrent, int nothing = 0) {
    return model.count(LayerKind::sliding) == sliding && model.count(LayerKind::full) == full
           && model.count(LayerKind::recurrent) == recurrent && model.count(LayerKind::nothing) == nothing
           && sliding + full + recurrent + nothing == model.layers;
}
static_assert(counts(llama31_8b, 0, 32, 0) && counts(llama31_70b, 0, 80, 0) && counts(qwen3_8b, 0, 36, 0));
static_assert(counts(phi4, 0, 40, 0) && counts(deepseek_v3, 0, 61, 0) && counts(mistral_7b, 32, 0, 0));
static_assert(counts(gemma2_9b, 21, 21, 0) && counts(gemma3_4b, 29, 5, 0) && counts(gemma3_12b, 40, 8, 0));
static_assert(counts(gpt_oss_20b, 12, 12, 0) && counts(gpt_oss_120b, 18, 18, 0));
static_assert(counts(mamba2_2_7b, 0, 0, 64) && counts(rwkv7_2_9b, 0, 0, 32) && counts(qwen3_next_80b, 0, 12, 36));
static_assert(counts(jamba15_mini, 0, 4, 28) && counts(nemotron_h_8b, 0, 4, 24, 24));
static_assert(counts(granite4_h_tiny, 0, 4, 36) && counts(lfm2_1_2b, 0, 6, 10));

// Positions of layers, and their indices in their memory.
static_assert(gemma3_4b.kind(4) == LayerKind::sliding && gemma3_4b.kind(5) == LayerKind::full);
static_assert(gemma3_4b.kind(29) == LayerKind::full && gemma3_4b.kind(33) == LayerKind::sliding);
static_assert(gemma3_4b.count(LayerKind::full, 29) == 4 && gemma3_4b.count(LayerKind::sliding, 33) == 28);
static_assert(gpt_oss_20b.kind(0) == LayerKind::sliding && gemma2_9b.kind(0) == LayerKind::sliding);
static_assert(jamba15_mini.kind(4) == LayerKind::full && jamba15_mini.kind(28) == LayerKind::full);
static_assert(granite4_h_tiny.kind(5) == LayerKind::full && granite4_h_tiny.kind(35) == LayerKind::full);
static_assert(nemotron_h_8b.kind(7) == LayerKind::full && nemotron_h_8b.kind(40) == LayerKind::full);
static_assert(qwen3_next_80b.kind(3) == LayerKind::full && qwen3_next_80b.kind(47) == LayerKind::full);
static_assert(lfm2_1_2b.kind(2) == LayerKind::full && lfm2_1_2b.kind(14) == LayerKind::full);

template <class Window, class Shift, class Backend = HostBackend>
using Bf16Cache = Cache<StandardV<bf16>, Window, Shift, Backend>;
static_assert(std::is_same_v<Llama31_8B::Memory<>, Bf16Cache<FullCausal, RopeShift<Neox>>>);
static_assert(std::is_same_v<Mistral_7B::Memory<>, Bf16Cache<SlidingWindow<4096>, RopeShift<Neox>>>);
static_assert(std::is_same_v<DeepSeekV3::Memory<>, Bf16Cache<FullCausal, RopeShift<Interleaved>>>);
static_assert(std::is_same_v<Gemma3_4B::Sliding<>, Bf16Cache<SlidingWindow<1024>, RopeShift<Neox>>>);
static_assert(std::is_same_v<Gemma3_4B::Full<EigenBackend>, Bf16Cache<FullCausal, RopeShift<Neox>, EigenBackend>>);
static_assert(std::is_same_v<Jamba15Mini::Full<HostBackend, PermutedV<half>>,
                             Cache<PermutedV<half>, FullCausal, UnrotatedShift>>);

// Hybrids and recurrent memories.
static_assert(std::is_same_v<GptOss_20B::Memory<>, Hybrid<Repeat<GptOss_20B::Sliding<>, GptOss_20B::Full<>>,
                                                          GptOss_20B::Sliding<>, GptOss_20B::Full<>>>);
static_assert(
    std::is_same_v<Mamba2_2_7B::Memory<>, RecurrentMemory<States<Mamba2_2_7B::State<0>, Mamba2_2_7B::State<1>>>>);
static_assert(Mamba2_2_7B::State<0>::rank == 2 && Mamba2_2_7B::State<1>::rank == 3);
static_assert(std::is_same_v<Lfm2_1_2B::Recurrent<EigenBackend, half>,
                             RecurrentMemory<States<Lfm2_1_2B::State<0, half>>, EigenBackend>>);

template <class M>
constexpr bool places_agree() {
    for (int layer = 0; layer < M::description.layers; ++layer) {
        const LayerPlace place = M::template Memory<>::place(layer);
        if (place.layer != M::description.count(M::description.kind(layer), layer)) return false;
    }
    return true;
}
static_assert(places_agree<Gemma3_4B>() && places_agree<Jamba15Mini>() && places_agree<Lfm2_1_2B>());
static_assert(places_agree<NemotronH_8B>());
static_assert(NemotronH_8B::Memory<>::place(1) == LayerPlace{no_memory, 0}
              && NemotronH_8B::Memory<>::place(7) == LayerPlace{0, 0});

template <class... Models>
constexpr bool all_memories(ModelList<Models...>) {
    return (Memory<typename Models::template Memory<>> && ...);
}
static_assert(all_memories(All{}));

// A model has a memory for a kind of layers only if it has such layers.
template <class M>
concept has_sliding = requires {
    typename M::template Sliding<>;
};
template <class M>
concept has_full = requires {
    typename M::template Full<>;
};
template <class M>
concept has_recurrent = requires {
    typename M::template Recurrent<>;
};
static_assert(has_sliding<Mistral_7B> && !has_full<Mistral_7B> && !has_recurrent<Mistral_7B>);
static_assert(!has_sliding<Phi4> && has_full<Phi4> && !has_recurrent<Phi4>);
static_assert(has_sliding<Gemma2_9B> && has_full<Gemma2_9B> && !has_recurrent<Gemma2_9B>);
static_assert(!has_sliding<Lfm2_1_2B> && has_full<Lfm2_1_2B> && has_recurrent<Lfm2_1_2B>);
static_assert(!has_sliding<Mamba2_2_7B> && !has_full<Mamba2_2_7B> && has_recurrent<Mamba2_2_7B>);

// Sizes are constant expressions.
static_assert(bytes_per_token(llama31_8b) == 131072 && bytes_per_sequence(llama31_8b) == 0);
static_assert(bytes_per_token<StandardV<float>>(llama31_8b) == 2 * 131072);

} // namespace
