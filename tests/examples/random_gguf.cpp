// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "random_gguf.hpp"

#include <cmath>
#include <ggml-cpp.h>
#include <initializer_list>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

class Writer {
public:
    explicit Writer(const RandomModel& model)
        : model_{model},
          random_{model.seed},
          file_{gguf_init_empty()},
          tensors_{ggml_init({std::size_t{1} << 26, nullptr, false})} {}

    void metadata() {
        const auto number = [&](const std::string& key, int value) {
            gguf_set_val_u32(file_.get(), (model_.architecture + "." + key).c_str(), static_cast<std::uint32_t>(value));
        };
        gguf_set_val_str(file_.get(), "general.architecture", model_.architecture.c_str());
        number("block_count", model_.layers);
        number("embedding_length", model_.width);
        number("feed_forward_length", model_.feed_forward);
        number("attention.head_count", model_.heads);
        if (is_lfm2()) {
            std::vector<std::uint32_t> heads;
            for (int i = 0; i < model_.layers; ++i)
                heads.push_back(convolves(i) ? 0 : static_cast<std::uint32_t>(model_.kv_heads));
            gguf_set_arr_data(file_.get(), "lfm2.attention.head_count_kv", GGUF_TYPE_UINT32, heads.data(),
                              heads.size());
            number("shortconv.l_cache", model_.taps);
        } else {
            number("attention.head_count_kv", model_.kv_heads);
        }
        number("attention.key_length", model_.head_dim);
        number("attention.value_length", model_.head_dim);
        number("rope.dimension_count", model_.head_dim);
        number("context_length", 4096);
        number("vocab_size", model_.vocabulary);
        if (is_gemma()) number("attention.sliding_window", model_.window);
        gguf_set_val_f32(file_.get(), (model_.architecture + ".attention.layer_norm_rms_epsilon").c_str(), 1e-5F);
        gguf_set_val_f32(file_.get(), (model_.architecture + ".rope.freq_base").c_str(), 20000);
        gguf_set_val_str(file_.get(), "tokenizer.ggml.model", "none");
    }

    void tensors() {
        matrix("token_embd.weight", model_.width, model_.vocabulary);
        vector(is_lfm2() ? "token_embd_norm.weight" : "output_norm.weight", model_.width, 1);
        if (!model_.ties_classifier) matrix("output.weight", model_.width, model_.vocabulary);
        if (model_.rope_divisors) vector("rope_freqs.weight", model_.head_dim / 2, 2);
        for (int i = 0; i < model_.layers; ++i) layer(i);
    }

    void write(const std::string& path) {
        if (model_.change) model_.change(file_.get());
        if (!gguf_write_to_file(file_.get(), path.c_str(), false))
            throw std::runtime_error{path + " cannot be written"};
    }

private:
    bool is_gemma() const { return model_.architecture == "gemma3"; }
    bool is_lfm2() const { return model_.architecture == "lfm2"; }
    bool convolves(int i) const { return is_lfm2() && i % 3 != 2; }

    void layer(int i) {
        const std::string begin = "blk." + std::to_string(i) + ".";
        vector(begin + "attn_norm.weight", model_.width, 1);
        if (convolves(i)) {
            convolution(begin);
        } else {
            attention(begin);
        }
        vector(begin + "ffn_norm.weight", model_.width, 1);
        matrix(begin + "ffn_gate.weight", model_.width, model_.feed_forward);
        matrix(begin + "ffn_up.weight", model_.width, model_.feed_forward);
        matrix(begin + "ffn_down.weight", model_.feed_forward, model_.width);
        if (is_gemma()) {
            vector(begin + "post_attention_norm.weight", model_.width, 1);
            vector(begin + "post_ffw_norm.weight", model_.width, 1);
        }
    }

    void convolution(const std::string& begin) {
        matrix(begin + "shortconv.in_proj.weight", model_.width, 3 * model_.width);
        matrix(begin + "shortconv.conv.weight", model_.taps, model_.width, GGML_TYPE_F32);
        matrix(begin + "shortconv.out_proj.weight", model_.width, model_.width);
    }

    void attention(const std::string& begin) {
        const int queries = model_.heads * model_.head_dim;
        const int keys = model_.kv_heads * model_.head_dim;
        matrix(begin + "attn_q.weight", model_.width, queries);
        matrix(begin + "attn_k.weight", model_.width, keys);
        matrix(begin + "attn_v.weight", model_.width, keys);
        matrix(begin + "attn_output.weight", queries, model_.width);
        if (model_.biases) {
            vector(begin + "attn_q.bias", queries, 0);
            vector(begin + "attn_k.bias", keys, 0);
            vector(begin + "attn_v.bias", keys, 0);
        }
        if (is_gemma() || is_lfm2() || model_.architecture == "qwen3") {
            vector(begin + "attn_q_norm.weight", model_.head_dim, 1);
            vector(begin + "attn_k_norm.weight", model_.head_dim, 1);
        }
    }

    float uniform() { return static_cast<float>(static_cast<double>(random_() >> 11) * 0x1p-52 - 1); } // in [-1, 1)

    /// Around `middle`.
    void vector(const std::string& name, int size, float middle) {
        ggml_tensor* const t = ggml_new_tensor_1d(tensors_.get(), GGML_TYPE_F32, size);
        for (int i = 0; i < size; ++i) static_cast<float*>(t->data)[i] = middle + uniform() / 2;
        add(name, t);
    }

    void matrix(const std::string& name, int inputs, int outputs) { matrix(name, inputs, outputs, model_.type); }
    void matrix(const std::string& name, int inputs, int outputs, ggml_type type) {
        std::vector<float> values(static_cast<std::size_t>(inputs) * static_cast<std::size_t>(outputs));
        const float scale = 2 / std::sqrt(static_cast<float>(inputs));
        for (float& value : values) value = scale * uniform();
        ggml_tensor* const t = ggml_new_tensor_2d(tensors_.get(), type, inputs, outputs);
        ggml_quantize_chunk(type, values.data(), t->data, 0, outputs, inputs, nullptr);
        add(name, t);
    }

    void add(const std::string& name, ggml_tensor* tensor) {
        ggml_set_name(tensor, name.c_str());
        gguf_add_tensor(file_.get(), tensor);
    }

    const RandomModel& model_;
    std::mt19937_64 random_;
    gguf_context_ptr file_;
    ggml_context_ptr tensors_;
};

} // namespace

void write_gguf(const std::string& path, const RandomModel& model) {
    Writer writer{model};
    writer.metadata();
    writer.tensors();
    writer.write(path);
}

RandomModel random_model(const std::string& architecture, ggml_type type) {
    RandomModel model{.architecture = architecture, .type = type};
    model.ties_classifier = architecture != "qwen2";
    model.biases = architecture == "qwen2";
    model.rope_divisors = architecture == "llama";
    if (architecture == "qwen2" || architecture == "lfm2") model.head_dim = model.width / model.heads; // for libllama
    if (architecture == "gemma3") model.layers = 7; // the sixth sees everything
    if (architecture == "lfm2") model.layers = 6;
    return model;
}
