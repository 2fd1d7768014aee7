// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "random_model.hpp"

#include "processor.hpp"

#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace ggml_test {

namespace {

/// A model's metadata.
class Metadata {
public:
    explicit Metadata(std::string architecture) : architecture_{std::move(architecture)}, gguf_{gguf_init_empty()} {
        gguf_set_val_str(gguf_.get(), "general.architecture", architecture_.c_str());
        gguf_set_val_str(gguf_.get(), "tokenizer.ggml.model", "no_vocab");
    }
    void set(const char* key, int n) {
        gguf_set_val_u32(gguf_.get(), full(key).c_str(), static_cast<std::uint32_t>(n));
    }
    void set(const char* key, float x) { gguf_set_val_f32(gguf_.get(), full(key).c_str(), x); }
    gguf_context* get() const { return gguf_.get(); }

private:
    std::string full(const char* key) const { return architecture_ + "." + key; }

    std::string architecture_;
    gguf_context_ptr gguf_;
};

Metadata metadata_of(const std::string& architecture, int layers) {
    Metadata m{architecture};
    m.set("vocab_size", vocabulary);
    m.set("context_length", 1024);
    m.set("embedding_length", width);
    m.set("block_count", layers);
    m.set("feed_forward_length", feed_forward);
    m.set("attention.head_count", heads);
    m.set("attention.layer_norm_rms_epsilon", 1e-5F);
    m.set("attention.layer_norm_epsilon", 1e-5F);
    if (architecture == "deepseek2") {
        m.set("attention.head_count_kv", 1);
        m.set("attention.key_length", latent + rotary);
        m.set("attention.value_length", latent);
        m.set("attention.key_length_mla", mla_key_dim);
        m.set("attention.value_length_mla", mla_value_dim);
        m.set("attention.kv_lora_rank", latent);
        m.set("attention.q_lora_rank", 24);
        m.set("rope.dimension_count", rotary);
        m.set("leading_dense_block_count", layers); // no experts
        m.set("expert_count", 2);
        m.set("expert_used_count", 1);
        m.set("expert_shared_count", 1);
        m.set("expert_feed_forward_length", 32);
        return m;
    }
    m.set("attention.head_count_kv", architecture == "mpt" ? heads : kv_heads);
    m.set("attention.key_length", head_dim);
    m.set("attention.value_length", head_dim);
    m.set("rope.dimension_count", head_dim);
    m.set("attention.sliding_window", window);
    m.set("attention.max_alibi_bias", 8.0F);
    return m;
}

/// Numbers that look random, around 0, or around 1 for norms and divisors. Scales, which quantised weights have, are 1.
float number(std::string_view name, std::size_t i) {
    if (name.ends_with("scale") || name.ends_with("scales")) return 1;
    const auto seed = static_cast<double>(std::hash<std::string_view>{}(name) % 1000);
    const double wave = std::sin(seed + 1.7 * static_cast<double>(i) + 0.3 * std::sqrt(static_cast<double>(i)));
    const bool is_near_one = name.find("norm.weight") != name.npos || name.find("rope_freqs") != name.npos;
    return static_cast<float>(is_near_one ? 1 + 0.1 * wave : 0.22 * wave);
}

} // namespace

void RandomModel::fill(ggml_tensor* tensor, void* userdata) {
    auto& model = *static_cast<RandomModel*>(userdata);
    const std::string name = tensor->name;
    if (tensor->type != GGML_TYPE_F32) throw std::runtime_error{name + " is not of float"};
    std::vector<float> numbers(static_cast<std::size_t>(ggml_nelements(tensor)));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(name, i);
    ggml_backend_tensor_set(tensor, numbers.data(), 0, ggml_nbytes(tensor));
    if (model.weights_.contains(name)) return; // a tensor that has two names
    ggml_tensor* const own = ggml_new_tensor(model.context_.get(), GGML_TYPE_F32, ggml_n_dims(tensor), tensor->ne);
    ggml_set_name(own, name.c_str());
    model.weights_[name] = own;
    model.data_[name] = std::move(numbers);
}

RandomModel::RandomModel(std::string architecture, int layers)
    : architecture_{std::move(architecture)},
      layers_{layers},
      context_{ggml_init({2048 * ggml_tensor_overhead(), nullptr, true})} {
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
            if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
        },
        nullptr);
    load_plugins();
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    params.use_extra_bufts = false;
    const Metadata metadata = metadata_of(architecture_, layers_);
    model_.reset(llama_model_init_from_user(metadata.get(), fill, this, params));
    if (model_ == nullptr) throw std::runtime_error{"libllama could not make a model of " + architecture_};
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
    for (const auto& [name, numbers] : data_)
        ggml_backend_tensor_set(weights_[name], numbers.data(), 0, numbers.size() * sizeof(float));
    data_.clear();
}

ggml_tensor* RandomModel::find(const std::string& name) const {
    const auto found = weights_.find(name);
    return found == weights_.end() ? nullptr : found->second;
}

ggml_tensor* RandomModel::of_layer(int layer, const std::string& name) const {
    return find("blk." + std::to_string(layer) + "." + name);
}

Llama::Llama(const RandomModel& model, const LlamaOptions& options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_batch = params.n_ubatch = 256;
    params.n_seq_max = static_cast<std::uint32_t>(options.sequences);
    params.n_threads = params.n_threads_batch = options.threads;
    params.flash_attn_type = options.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = options.element;
    params.kv_unified = true;
    params.swa_full = true;
    context_.reset(llama_init_from_model(model.get(), params));
    if (context_ == nullptr) throw std::runtime_error{"libllama could not make a context"};
}

std::vector<float> Llama::decode(const Text& batch) {
    const auto n = static_cast<std::int32_t>(batch.size());
    llama_batch given = llama_batch_init(n, 0, 1);
    given.n_tokens = n;
    for (std::int32_t i = 0; i < n; ++i) {
        const Token& token = batch[static_cast<std::size_t>(i)];
        given.token[i] = token.word;
        given.pos[i] = token.position;
        given.n_seq_id[i] = 1;
        given.seq_id[i][0] = token.sequence;
        given.logits[i] = 1;
    }
    const int failed = llama_decode(context_.get(), given);
    llama_batch_free(given);
    if (failed != 0) throw std::runtime_error{"llama_decode failed"};
    const float* const logits = llama_get_logits(context_.get());
    return {logits, logits + batch.size() * vocabulary};
}

void Llama::copy(int from, int to, int length) {
    llama_memory_seq_cp(llama_get_memory(context_.get()), from, to, 0, length);
}

void Llama::remove(int sequence) {
    llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, -1, -1);
}

} // namespace ggml_test
