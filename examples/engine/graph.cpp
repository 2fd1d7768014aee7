// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "graph.hpp"

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <variant>

namespace engine {

namespace {

/// The nodes of a model's layers. `x` is [width, tokens].
class Layers {
public:
    Layers(const Model& model, GraphAttention& attention, Rounding* rounding, ggml_context* context, ggml_cgraph* graph,
           ggml_tensor* positions)
        : shape_{model.shape()},
          weights_{model.weights()},
          attention_{attention},
          rounding_{rounding},
          context_{context},
          graph_{graph},
          positions_{positions} {}

    ggml_tensor* embed(ggml_tensor* tokens) const {
        ggml_tensor* const x = ggml_get_rows(context_, weights_.embedding, tokens);
        if (!shape_.architecture.scaled_embedding) return x;
        return ggml_scale(context_, x, std::sqrt(static_cast<float>(shape_.width)));
    }

    /// `outputs`: the tokens that go on after attention; null: all.
    ggml_tensor* layer(int i, ggml_tensor* x, ggml_tensor* outputs) const {
        const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
        ggml_tensor* attended = linear(w.output, mixed(i, w, normed(x, w.attention_norm)));
        if (outputs != nullptr) {
            attended = ggml_get_rows(context_, attended, outputs);
            x = ggml_get_rows(context_, x, outputs);
        }
        x = ggml_add(context_, normed(attended, w.attention_post_norm), x);
        return ggml_add(context_, normed(feed_forward(w, normed(x, w.feed_forward_norm)), w.feed_forward_post_norm), x);
    }

    ggml_tensor* classify(ggml_tensor* x) const { return linear(weights_.classifier, normed(x, weights_.norm)); }

private:
    /// As it is, if there is no norm.
    ggml_tensor* normed(ggml_tensor* x, ggml_tensor* weight) const {
        if (weight == nullptr) return x;
        return ggml_mul(context_, ggml_rms_norm(context_, x, shape_.epsilon), weight);
    }

    ggml_tensor* linear(const Linear& w, ggml_tensor* x) const {
        ggml_tensor* const y = ggml_mul_mat(context_, w.weight, x);
        return w.bias == nullptr ? y : ggml_add(context_, y, w.bias);
    }

    ggml_tensor* mixed(int i, const LayerWeights& w, ggml_tensor* x) const {
        if (shape_.layer(i).kind == LayerKind::recurrent)
            return attention_.convolve(context_, i, linear(w.convolution_input, x), w.convolution_kernel);
        const LayerDescription& layer = shape_.layer(i);
        const auto heads = [&](const Linear& projection, int count, int dim) {
            return ggml_reshape_3d(context_, linear(projection, x), dim, count, x->ne[1]);
        };
        const cellar::LayerShape& stored = layer.shape;
        ggml_tensor* q = rotated(layer.rope, normed(heads(w.query, layer.heads, stored.key_dim), w.query_norm));
        ggml_tensor* const k = rotated(layer.rope, normed(heads(w.key, stored.kv_heads, stored.key_dim), w.key_norm));
        ggml_tensor* const v = heads(w.value, stored.kv_heads, stored.value_dim);
        if (shape_.architecture.scaled_queries) q = ggml_scale(context_, q, shape_.scale(i));
        if (rounding_ == nullptr) return attention_.attend(context_, graph_, i, q, k, v);
        const auto [keys, values] = rounding_->nodes(context_, i, q, k, v);
        ggml_tensor* const out = attention_.attend(context_, graph_, i, q, keys, values);
        return rounding_->attended(context_, i, q, {k, v}, {keys, values}, out);
    }

    ggml_tensor* rotated(const cellar::models::RunTimeRope& rope, ggml_tensor* x) const {
        ggml_tensor* const divisors = rope.divisors.empty() ? nullptr : weights_.rope_divisors;
        const bool is_neox = rope.pairing == cellar::models::Pairing::neox;
        const auto* const linear = std::get_if<cellar::models::LinearScaling>(&rope.scaling);
        const auto scale = static_cast<float>(1 / (linear == nullptr ? 1 : linear->factor));
        return ggml_rope_ext(context_, x, positions_, divisors, rope.dims,
                             is_neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, shape_.memory.trained_context,
                             static_cast<float>(rope.base), scale, 0, 1, 32,
                             1); // without YaRN, the last four do nothing
    }

    ggml_tensor* feed_forward(const LayerWeights& w, ggml_tensor* x) const {
        ggml_tensor* const up = linear(w.up, x);
        ggml_tensor* const gate = linear(w.gate, x);
        return linear(w.down, shape_.architecture.gelu ? ggml_geglu_split(context_, gate, up)
                                                       : ggml_swiglu_split(context_, gate, up));
    }

    const Shape& shape_;
    const Weights& weights_;
    GraphAttention& attention_;
    Rounding* rounding_;
    ggml_context* context_;
    ggml_cgraph* graph_;
    ggml_tensor* positions_;
};

void set(ggml_tensor* tensor, std::span<const std::int32_t> values) {
    ggml_backend_tensor_set(tensor, values.data(), 0, values.size_bytes());
}

} // namespace

Graph::Graph(const Model& model, Memory& memory, Rounding* rounding, int tokens, int outputs)
    : backend_{model.processor().backend()} {
    constexpr std::size_t nodes_of_layer = 64;
    const auto layers = static_cast<std::size_t>(model.shape().layers());
    const std::size_t nodes = 64 + nodes_of_layer * layers;
    const std::size_t bytes = 2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false);
    context_.reset(ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = true}));
    ggml_context* const c = context_.get();
    const auto input = [&](int size) {
        ggml_tensor* const t = ggml_new_tensor_1d(c, GGML_TYPE_I32, size);
        ggml_set_input(t);
        return t;
    };
    tokens_ = input(tokens);
    positions_ = input(tokens);
    outputs_ = input(outputs);
    attention_ = memory.attention(c);
    graph_ = ggml_new_graph_custom(c, nodes, false);
    const Layers build{model, *attention_, rounding, c, graph_, positions_};
    ggml_tensor* x = build.embed(tokens_);
    for (int i = 0; i < model.shape().layers(); ++i)
        x = build.layer(i, x, i + 1 == model.shape().layers() ? outputs_ : nullptr);
    logits_ = build.classify(x);
    ggml_set_output(logits_);
    ggml_build_forward_expand(graph_, logits_);
    memory_of_nodes_.reset(ggml_gallocr_new(model.processor().buffer_type()));
    if (!ggml_gallocr_alloc_graph(memory_of_nodes_.get(), graph_))
        throw std::runtime_error{"there is not enough memory for a graph of " + std::to_string(tokens) + " tokens"};
}

bool Graph::fits(const GraphInput& input) const {
    return std::ssize(input.tokens) == tokens_->ne[0] && std::ssize(input.outputs) == outputs_->ne[0]
           && attention_->fits();
}

void Graph::compute(const GraphInput& input, float* logits) {
    // Every time: nodes use the memory of inputs that are no longer needed.
    set(tokens_, input.tokens);
    set(positions_, input.positions);
    set(outputs_, input.outputs);
    if (attention_->compute(backend_, graph_) != GGML_STATUS_SUCCESS)
        throw std::runtime_error{"ggml could not compute the graph"};
    ggml_backend_tensor_get(logits_, logits, 0, ggml_nbytes(logits_));
}

} // namespace engine
