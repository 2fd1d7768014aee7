// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "graph.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ggml_test {

namespace {

constexpr std::size_t nodes = 2048;

/// The nodes of a model's layers. Operations and their order are those of libllama, so that results can be equal.
class Layers {
public:
    Layers(const RandomModel& model, ggml_context* context, ggml_cgraph* graph, ggml_tensor* positions,
           const Attend& attend)
        : model_{model},
          context_{context},
          graph_{graph},
          positions_{positions},
          attend_{attend},
          is_gemma_{model.architecture() == "gemma3"},
          is_mla_{model.architecture() == "deepseek2"},
          is_mpt_{model.architecture() == "mpt"} {}

    ggml_tensor* embed(ggml_tensor* words) const {
        ggml_tensor* const x = ggml_get_rows(context_, model_.find("token_embd.weight"), words);
        if (is_gemma_) return ggml_scale(context_, x, std::sqrt(static_cast<float>(width)));
        if (!is_mpt_) return x;
        return ggml_add(context_, x, ggml_get_rows(context_, model_.find("position_embd.weight"), positions_));
    }

    ggml_tensor* layer(int i, ggml_tensor* x) const {
        ggml_tensor* attended = attention(i, norm(i, "attn_norm", x));
        if (is_gemma_) attended = norm(i, "post_attention_norm", attended);
        x = ggml_add(context_, attended, x);
        ggml_tensor* fed = feed(i, norm(i, "ffn_norm", x));
        if (is_gemma_) fed = norm(i, "post_ffw_norm", fed);
        return ggml_add(context_, fed, x);
    }

    ggml_tensor* classify(ggml_tensor* x) const {
        ggml_tensor* const weight = model_.find("output.weight");
        x = norm(x, "output_norm");
        return ggml_mul_mat(context_, weight == nullptr ? model_.find("token_embd.weight") : weight, x);
    }

private:
    ggml_tensor* norm(ggml_tensor* x, const std::string& name) const {
        constexpr float epsilon = 1e-5F;
        x = is_mpt_ ? ggml_norm(context_, x, epsilon) : ggml_rms_norm(context_, x, epsilon);
        x = ggml_mul(context_, x, model_.find(name + ".weight"));
        ggml_tensor* const bias = is_mpt_ ? model_.find(name + ".bias") : nullptr;
        return bias == nullptr ? x : ggml_add(context_, x, bias);
    }
    ggml_tensor* norm(int i, const std::string& name, ggml_tensor* x) const {
        return norm(x, "blk." + std::to_string(i) + "." + name);
    }

    ggml_tensor* linear(int i, const std::string& name, ggml_tensor* x) const {
        ggml_tensor* const y = ggml_mul_mat(context_, model_.of_layer(i, name + ".weight"), x);
        ggml_tensor* const bias = model_.of_layer(i, name + ".bias");
        return bias == nullptr ? y : ggml_add(context_, y, bias);
    }

    ggml_tensor* rotated(ggml_tensor* x, int dims, ggml_tensor* divisors) const {
        const int type = is_gemma_ ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
        return ggml_rope_ext(context_, x, positions_, divisors, dims, type, 1024, 10000, 1, 0, 1, 32, 1);
    }

    ggml_tensor* part(ggml_tensor* x, std::int64_t first, std::int64_t dim, std::int64_t n, std::int64_t stride) const {
        constexpr std::size_t size = sizeof(float);
        const auto bytes = static_cast<std::size_t>(stride) * size;
        return ggml_view_3d(context_, x, dim, n, x->ne[1], bytes, x->nb[1], static_cast<std::size_t>(first) * size);
    }

    ggml_tensor* attention(int i, ggml_tensor* x) const {
        if (is_mla_) return latent_attention(i, x);
        ggml_tensor *q, *k, *v;
        if (model_.of_layer(i, "attn_qkv.weight") != nullptr) {
            ggml_tensor* const all = linear(i, "attn_qkv", x);
            const std::int64_t others = model_.architecture() == "mpt" ? heads : kv_heads;
            q = part(all, 0, head_dim, heads, head_dim);
            k = part(all, width, head_dim, others, head_dim);
            v = part(all, width + others * head_dim, head_dim, others, head_dim);
        } else {
            q = ggml_reshape_3d(context_, linear(i, "attn_q", x), head_dim, heads, x->ne[1]);
            k = ggml_reshape_3d(context_, linear(i, "attn_k", x), head_dim, kv_heads, x->ne[1]);
            v = ggml_reshape_3d(context_, linear(i, "attn_v", x), head_dim, kv_heads, x->ne[1]);
        }
        if (is_gemma_) {
            q = norm(i, "attn_q_norm", q);
            k = norm(i, "attn_k_norm", k);
        }
        if (!is_mpt_) {
            q = rotated(q, head_dim, model_.find("rope_freqs.weight"));
            k = rotated(k, head_dim, model_.find("rope_freqs.weight"));
        }
        if (is_gemma_) q = ggml_scale(context_, q, 1 / std::sqrt(static_cast<float>(head_dim)));
        return linear(i, "attn_output", as_rows(attend_(context_, graph_, i, q, k, v)));
    }

    // Keys and values are what was compressed, and queries are taken there.
    ggml_tensor* latent_attention(int i, ggml_tensor* x) const {
        constexpr std::int64_t plain = mla_key_dim - rotary;
        const std::int64_t tokens = x->ne[1];
        ggml_tensor* q = linear(i, "attn_q_a", x);
        q = linear(i, "attn_q_b", norm(i, "attn_q_a_norm", q));
        ggml_tensor* const q_plain = part(q, 0, plain, heads, mla_key_dim);
        ggml_tensor* const q_rotary = rotated(part(q, plain, rotary, heads, mla_key_dim), rotary, nullptr);
        ggml_tensor* const all = linear(i, "attn_kv_a_mqa", x);
        ggml_tensor* const k_rotary = rotated(part(all, latent, rotary, 1, rotary), rotary, nullptr);
        ggml_tensor* v = ggml_view_2d(context_, all, latent, tokens, all->nb[1], 0);
        v = ggml_reshape_3d(context_, norm(i, "attn_kv_a_norm", v), latent, 1, tokens);
        ggml_tensor* absorbed =
            ggml_mul_mat(context_, model_.of_layer(i, "attn_k_b.weight"), ggml_permute(context_, q_plain, 0, 2, 1, 3));
        absorbed = ggml_permute(context_, absorbed, 0, 2, 1, 3);
        q = ggml_concat(context_, absorbed, q_rotary, 0);
        ggml_tensor* const k = ggml_concat(context_, v, k_rotary, 0);
        ggml_tensor* out = attend_(context_, graph_, i, q, k, v);
        out = ggml_mul_mat(context_, model_.of_layer(i, "attn_v_b.weight"),
                           ggml_reshape_4d(context_, out, latent, 1, heads, tokens));
        return linear(i, "attn_output", ggml_reshape_2d(context_, out, heads * mla_value_dim, tokens));
    }

    ggml_tensor* as_rows(ggml_tensor* x) const {
        return ggml_reshape_2d(context_, x, width, ggml_nelements(x) / width);
    }

    ggml_tensor* feed(int i, ggml_tensor* x) const {
        ggml_tensor* const up = linear(i, "ffn_up", x);
        if (is_mpt_) return linear(i, "ffn_down", ggml_gelu(context_, up));
        ggml_tensor* const gate = linear(i, "ffn_gate", x);
        return linear(i, "ffn_down",
                      is_gemma_ ? ggml_geglu_split(context_, gate, up) : ggml_swiglu_split(context_, gate, up));
    }

    const RandomModel& model_;
    ggml_context* context_;
    ggml_cgraph* graph_;
    ggml_tensor* positions_;
    const Attend& attend_;
    bool is_gemma_;
    bool is_mla_;
    bool is_mpt_;
};

} // namespace

Graph::Graph(const RandomModel& model, int tokens, const Attend& attend, ggml_backend_sched_t scheduler)
    : context_{ggml_init(
        {2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false), nullptr, true})},
      memory_{ggml_gallocr_new(ggml_backend_cpu_buffer_type())},
      graph_{ggml_new_graph_custom(context_.get(), nodes, false)},
      words_{ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, tokens)},
      positions_{ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, tokens)} {
    if (scheduler != nullptr) ggml_backend_sched_reset(scheduler);
    ggml_set_input(words_);
    ggml_set_input(positions_);
    const Layers layers{model, context_.get(), graph_, positions_, attend};
    ggml_tensor* x = layers.embed(words_);
    for (int i = 0; i < model.layers(); ++i) x = layers.layer(i, x);
    logits_ = layers.classify(x);
    ggml_set_output(logits_);
    ggml_build_forward_expand(graph_, logits_);
    if (scheduler == nullptr) {
        ggml_gallocr_alloc_graph(memory_.get(), graph_);
    } else {
        ggml_backend_sched_alloc_graph(scheduler, graph_);
    }
}

std::vector<float> Graph::compute(const Text& batch, const std::function<void(ggml_cgraph*)>& compute) {
    std::vector<std::int32_t> words, positions;
    for (const Token& token : batch) {
        words.push_back(token.word);
        positions.push_back(token.position);
    }
    const std::size_t bytes = batch.size() * sizeof(std::int32_t);
    ggml_backend_tensor_set(words_, words.data(), 0, bytes);
    ggml_backend_tensor_set(positions_, positions.data(), 0, bytes);
    compute(graph_);
    std::vector<float> logits(batch.size() * vocabulary);
    ggml_backend_tensor_get(logits_, logits.data(), 0, logits.size() * sizeof(float));
    return logits;
}

float scale_of(const RandomModel& model) {
    if (model.architecture() == "gemma3") return 1; // in the queries
    if (model.architecture() == "deepseek2") return 1 / std::sqrt(static_cast<float>(mla_key_dim));
    return 0;
}

bool slides(const RandomModel& model, int layer) {
    return model.architecture() == "gemma3" && layer % 6 < 5;
}

} // namespace ggml_test
