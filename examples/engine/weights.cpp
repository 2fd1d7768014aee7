// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace engine {

namespace {

std::string extents_of(const std::int64_t* first, std::size_t count) {
    std::string text = "[";
    for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(first[i]);
    return text + "]";
}

} // namespace

Weights::Weights(const GgufFile& file, Shape& shape, const Processor& processor) : file_{file}, processor_{processor} {
    const ggml_tensor* const rows = file.tensor("token_embd.weight");
    if (rows == nullptr) file.fail("the tensor token_embd.weight is missing");
    shape.vocabulary = static_cast<int>(std::clamp<std::int64_t>(rows->ne[1], 0, 1 << 24));
    embedding = required("token_embd.weight", {shape.width, shape.vocabulary});
    for (int i = 0; i < shape.layers(); ++i) layers.push_back(layer(i, shape));
    norm = vector(shape.architecture.final_norm, shape.width);
    classifier.weight = find("output.weight", {shape.width, shape.vocabulary});
    classifier.weight = packed(classifier.weight == nullptr ? embedding : classifier.weight);
    classifier.bias = find("output.bias", {shape.vocabulary});
    if (const ggml_tensor* const t = file.tensor("rope_freqs.weight")) rope_divisors = vector(t->name, t->ne[0]);
    expect_all_used();
    pack();
}

LayerWeights Weights::layer(int i, const Shape& s) {
    const std::string begin = "blk." + std::to_string(i) + ".";
    const Architecture& a = s.architecture;
    LayerWeights w;
    w.attention_norm = vector(begin + "attn_norm.weight", s.width);
    mixer(i, s, w);
    if (a.post_norms) w.attention_post_norm = vector(begin + "post_attention_norm.weight", s.width);
    w.feed_forward_norm = vector(begin + "ffn_norm.weight", s.width);
    const int inner = s.feed_forward[static_cast<std::size_t>(i)];
    w.gate = linear(begin + "ffn_gate", s.width, inner);
    w.up = linear(begin + "ffn_up", s.width, inner);
    w.down = linear(begin + "ffn_down", inner, s.width);
    if (a.post_norms) w.feed_forward_post_norm = vector(begin + "post_ffw_norm.weight", s.width);
    return w;
}

/// Attention, or a convolution.
void Weights::mixer(int i, const Shape& s, LayerWeights& w) {
    const std::string begin = "blk." + std::to_string(i) + ".";
    const LayerDescription& layer = s.layer(i);
    if (layer.kind == LayerKind::recurrent) {
        w.convolution_input = linear(begin + "shortconv.in_proj", s.width, 3 * std::int64_t{s.width});
        w.convolution_kernel = required(begin + "shortconv.conv.weight", {layer.state[0].extents[0] + 1, s.width});
        if (w.convolution_kernel->type != GGML_TYPE_F32)
            file_.fail("the tensor " + begin + "shortconv.conv.weight is of "
                       + ggml_type_name(w.convolution_kernel->type) + ", expected f32");
        w.output = linear(begin + "shortconv.out_proj", s.width, s.width);
        return;
    }
    const cellar::LayerShape& stored = layer.shape;
    w.query = linear(begin + "attn_q", s.width, layer.heads * stored.key_dim);
    w.key = linear(begin + "attn_k", s.width, stored.kv_heads * stored.key_dim);
    w.value = linear(begin + "attn_v", s.width, stored.kv_heads * stored.value_dim);
    if (s.architecture.head_norms) {
        w.query_norm = vector(begin + "attn_q_norm.weight", stored.key_dim);
        w.key_norm = vector(begin + "attn_k_norm.weight", stored.key_dim);
    }
    w.output = linear(begin + "attn_output", layer.heads * stored.value_dim, s.width);
}

Linear Weights::linear(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    Linear found{.weight = packed(required(name + ".weight", {inputs, outputs}))};
    found.bias = find(name + ".bias", {outputs});
    return found;
}

ggml_tensor* Weights::vector(const std::string& name, std::int64_t size) {
    return required(name, {size});
}

ggml_tensor* Weights::required(const std::string& name, Extents extents) {
    ggml_tensor* const found = find(name, extents);
    if (found == nullptr) file_.fail("the tensor " + name + " is missing");
    return found;
}

ggml_tensor* Weights::find(const std::string& name, Extents extents) {
    ggml_tensor* const found = file_.tensor(name);
    if (found == nullptr) return nullptr;
    used_.insert(name);
    std::int64_t wanted[GGML_MAX_DIMS] = {1, 1, 1, 1};
    std::copy(extents.begin(), extents.end(), wanted);
    if (!std::equal(wanted, wanted + GGML_MAX_DIMS, found->ne))
        file_.fail("the tensor " + name + " is " + extents_of(found->ne, static_cast<std::size_t>(ggml_n_dims(found)))
                   + ", expected " + extents_of(wanted, extents.size()));
    if (extents.size() == 1 && found->type != GGML_TYPE_F32)
        file_.fail("the tensor " + name + " is of " + ggml_type_name(found->type) + ", expected f32");
    return found;
}

ggml_tensor* Weights::packed(ggml_tensor* tensor) {
    const ggml_backend_buffer_type_t type = processor_.best_for(*tensor);
    if (type == processor_.buffer_type()) return tensor;
    Packed& place = packed_[type];
    if (!place.context) {
        const auto most = static_cast<std::size_t>(gguf_get_n_tensors(file_.metadata())) + 1;
        place.context.reset(
            ggml_init({.mem_size = most * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    }
    place.from.push_back(tensor);
    place.to.push_back(ggml_dup_tensor(place.context.get(), tensor));
    return place.to.back();
}

void Weights::pack() {
    for (auto& [type, place] : packed_) {
        place.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(place.context.get(), type));
        if (!place.buffer) file_.fail("there is not enough memory for the packed weights");
        ggml_backend_buffer_set_usage(place.buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        for (std::size_t i = 0; i < place.to.size(); ++i)
            ggml_backend_tensor_set(place.to[i], place.from[i]->data, 0, ggml_nbytes(place.from[i]));
    }
}

void Weights::expect_all_used() const {
    for (std::int64_t i = 0; i < gguf_get_n_tensors(file_.metadata()); ++i) {
        const std::string name = gguf_get_tensor_name(file_.metadata(), i);
        if (used_.count(name) == 0)
            file_.fail("the tensor " + name + " is unknown, expected those of a dense model of this architecture");
    }
}

} // namespace engine
