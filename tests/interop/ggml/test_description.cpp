// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Descriptions from the keys of GGUF files, against what libllama makes of the same keys: its numbers, and the size of
// what it stores. Models of every architecture that `from_gguf` knows.
#include "processor.hpp"
#include "random_model.hpp"
#include <cellar/interop/ggml_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ggml-cpp.h>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace test_description {

using namespace cellar::models;
using namespace ggml_test;

namespace {

/// The keys of a file.
class Keys {
public:
    using Value = std::variant<int, float, bool, std::string, std::vector<std::uint32_t>>;
    using Map = std::vector<std::pair<std::string, Value>>;

    explicit Keys(const std::string& architecture) : architecture_{architecture}, file_{gguf_init_empty()} {
        gguf_set_val_str(get(), "general.architecture", architecture.c_str());
        gguf_set_val_str(get(), "tokenizer.ggml.model", "no_vocab");
        set({{"vocab_size", 32},
             {"context_length", 1024},
             {"embedding_length", 64},
             {"block_count", layers},
             {"feed_forward_length", 48},
             {"attention.head_count", 4},
             {"attention.head_count_kv", 2},
             {"attention.layer_norm_rms_epsilon", 1e-5F},
             {"attention.layer_norm_epsilon", 1e-5F},
             {"rope.dimension_count", 16}});
    }

    void set(const Map& map) {
        for (const auto& [key, value] : map) {
            const std::string name = architecture_ + "." + key;
            if (const auto* n = std::get_if<int>(&value))
                gguf_set_val_u32(get(), name.c_str(), static_cast<std::uint32_t>(*n));
            if (const auto* x = std::get_if<float>(&value)) gguf_set_val_f32(get(), name.c_str(), *x);
            if (const auto* flag = std::get_if<bool>(&value)) gguf_set_val_bool(get(), name.c_str(), *flag);
            if (const auto* text = std::get_if<std::string>(&value))
                gguf_set_val_str(get(), name.c_str(), text->c_str());
            if (const auto* list = std::get_if<std::vector<std::uint32_t>>(&value))
                gguf_set_arr_data(get(), name.c_str(), GGUF_TYPE_UINT32, list->data(), list->size());
        }
    }

    gguf_context* get() const { return file_.get(); }

    static constexpr int layers = 6;

private:
    std::string architecture_;
    gguf_context_ptr file_;
};

/// libllama's model of these keys, whose weights are zeros, with one sequence.
class Libllama {
public:
    explicit Libllama(const Keys& keys) {
        llama_model_params params = llama_model_default_params();
        params.n_gpu_layers = 0;
        params.use_extra_bufts = false;
        const auto zeros = [](ggml_tensor* tensor, void*) {
            ggml_backend_tensor_memset(tensor, 0, 0, ggml_nbytes(tensor));
        };
        model_.reset(llama_model_init_from_user(keys.get(), zeros, nullptr, params));
        REQUIRE(model_ != nullptr);
        llama_context_params of_context = llama_context_default_params();
        of_context.n_ctx = 1024;
        of_context.n_batch = of_context.n_ubatch = 64;
        of_context.n_threads = of_context.n_threads_batch = 1;
        of_context.type_k = of_context.type_v = GGML_TYPE_F32;
        of_context.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        of_context.swa_full = false;
        of_context.no_perf = true;
        context_.reset(llama_init_from_model(model_.get(), of_context));
        REQUIRE(context_ != nullptr);
    }

    const llama_model* model() const { return model_.get(); }

    /// Bytes of the state of the sequence.
    std::int64_t bytes() const { return static_cast<std::int64_t>(llama_state_seq_get_size(context_.get(), 0)); }

    void decode(int tokens) {
        while (tokens > 0) {
            std::vector<llama_token> batch(static_cast<std::size_t>(std::min(tokens, 64)));
            tokens -= static_cast<int>(batch.size());
            REQUIRE(llama_decode(context_.get(), llama_batch_get_one(batch.data(), static_cast<int>(batch.size())))
                    == 0);
        }
    }

private:
    std::unique_ptr<llama_model, FreesModel> model_;
    std::unique_ptr<llama_context, FreesContext> context_;
};

/// Bytes of a token in the layers of these kinds, in floats.
std::int64_t token_bytes(const RunTimeDescription& model, const std::vector<LayerKind>& kinds) {
    std::int64_t elements = 0;
    for (const LayerDescription& layer : model.layers)
        if (std::find(kinds.begin(), kinds.end(), layer.kind) != kinds.end())
            elements += std::int64_t{layer.shape.kv_heads} * (layer.shape.key_dim + layer.shape.value_dim);
    return 4 * elements;
}

std::int64_t state_bytes(const RunTimeDescription& model) {
    std::int64_t elements = 0;
    for (const LayerDescription& layer : model.layers)
        for (const StateDescription& tensor : layer.state) elements += tensor.elements();
    return 4 * elements;
}

double factor_of(const RunTimeRope& rope) {
    if (const auto* linear = std::get_if<LinearScaling>(&rope.scaling)) return linear->factor;
    if (const auto* yarn = std::get_if<cellar::YarnScaling>(&rope.scaling)) return yarn->factor;
    return 1;
}

void compare_numbers(const RunTimeDescription& found, const llama_model* model) {
    CHECK(std::ssize(found.layers) == llama_model_n_layer(model));
    CHECK(found.trained_context == llama_model_n_ctx_train(model));
    int window = 0;
    const LayerDescription* attention = nullptr; // the first layer of it that sees everything
    for (const LayerDescription& layer : found.layers) {
        if (layer.kind == LayerKind::recurrent || layer.kind == LayerKind::nothing) continue;
        window = std::max(window, layer.window);
        if (attention == nullptr && layer.kind == LayerKind::full) attention = &layer;
    }
    CHECK(window == llama_model_n_swa(model));
    const int recurrent = found.count(LayerKind::recurrent);
    CHECK(llama_model_is_recurrent(model) == (recurrent == std::ssize(found.layers)));
    CHECK(llama_model_is_hybrid(model) == (recurrent > 0 && attention != nullptr));
    if (attention == nullptr) return;
    CHECK(attention->heads == llama_model_n_head(model));
    Pairing pairing = Pairing::none;
    for (const LayerDescription& layer : found.layers)
        if (layer.rope.pairing != Pairing::none) pairing = layer.rope.pairing;
    const llama_rope_type type = llama_model_rope_type(model);
    CHECK((pairing == Pairing::none) == (type == LLAMA_ROPE_TYPE_NONE));
    if (type == LLAMA_ROPE_TYPE_NONE) return;
    CHECK((pairing == Pairing::neox) == (type == LLAMA_ROPE_TYPE_NEOX || type == LLAMA_ROPE_TYPE_IMROPE));
    const bool is_scaled = attention->rope.pairing != Pairing::none;
    if (is_scaled) CHECK(1 / factor_of(attention->rope) == doctest::Approx(llama_model_rope_freq_scale_train(model)));
}

/// Each token takes what the description says, in libllama's saved state.
void compare_bytes(const RunTimeDescription& found, Libllama& libllama) {
    constexpr std::int64_t of_cell = 12; // its position and its sequence
    const std::int64_t full = token_bytes(found, {LayerKind::full});
    const std::int64_t windows = token_bytes(found, {LayerKind::sliding, LayerKind::chunked});
    // Where there are windows, it has two pools, though no layer may be full.
    const std::int64_t cells = windows > 0 ? 2 * of_cell : full > 0 ? of_cell : 0;
    const std::int64_t empty = libllama.bytes();
    libllama.decode(1);
    const std::int64_t one = libllama.bytes();
    libllama.decode(1);
    CHECK(libllama.bytes() - one == full + windows + cells);
    // Its states come with a number of bytes for each tensor.
    const std::int64_t states = one - empty - (full + windows + cells);
    CHECK(states >= state_bytes(found));
    CHECK(states - state_bytes(found) < 64 + 32 * std::ssize(found.layers));
    if (found.count(LayerKind::sliding) == 0) return;
    libllama.decode(600); // its pool for windows is full
    const std::int64_t before = libllama.bytes();
    libllama.decode(64);
    CHECK(libllama.bytes() - before == 64 * (full + of_cell));
}

void compare(const std::string& architecture, const Keys::Map& more) {
    CAPTURE(architecture);
    Keys keys{architecture};
    keys.set(more);
    const auto found = from_gguf(keys.get());
    REQUIRE_MESSAGE(found, found.error().message);
    Libllama libllama{keys};
    compare_numbers(*found, libllama.model());
    compare_bytes(*found, libllama);
}

Keys::Map operator+(Keys::Map a, const Keys::Map& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

const Keys::Map head{{"attention.key_length", 24}, {"attention.value_length", 24}, {"rope.dimension_count", 24}};
const Keys::Map experts{{"expert_count", 4}, {"expert_used_count", 2}, {"expert_feed_forward_length", 32}};
const Keys::Map state{{"ssm.conv_kernel", 4},
                      {"ssm.inner_size", 128},
                      {"ssm.state_size", 16},
                      {"ssm.time_step_rank", 8},
                      {"ssm.group_count", 2}};
const std::vector<std::uint32_t> few_with_keys{0, 0, 2, 0, 0, 2};

} // namespace

TEST_CASE("gguf: attention models are what libllama makes of them") {
    load_plugins();
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
            if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
        },
        nullptr);
    compare("llama", {});
    compare("llama", {{"rope.scaling.type", std::string{"linear"}}, {"rope.scaling.factor", 4.0F}});
    compare("llama", {{"attention.head_count_kv", 1}});
    compare("qwen2", {});
    compare("qwen3", head);
    compare("qwen3", head
                         + Keys::Map{{"rope.scaling.type", std::string{"yarn"}},
                                     {"rope.scaling.factor", 4.0F},
                                     {"rope.scaling.original_context_length", 256}});
    compare("qwen3moe", head + experts);
    compare("phi3", {{"attention.sliding_window", 16}});
    compare("smollm3", {});
    compare("granite",
            {{"attention.scale", 0.125F}, {"logit_scale", 2.0F}, {"residual_scale", 1.0F}, {"embedding_scale", 2.0F}});
    for (const int layers : {5, 10, 12}) { // the numbers of layers with a window tell their period, and where it begins
        CAPTURE(layers);
        const Keys::Map windows{{"block_count", layers}, {"attention.sliding_window", 16}};
        compare("gemma2", head + windows);
        compare("gemma3", head + windows);
        compare("gpt-oss", head + experts + windows);
    }
    compare("llama4", experts + Keys::Map{{"interleave_moe_layer_step", 1}});
    compare("deepseek2", experts
                             + Keys::Map{{"attention.head_count_kv", 1},
                                         {"attention.key_length", 40},
                                         {"attention.value_length", 32},
                                         {"attention.key_length_mla", 24},
                                         {"attention.value_length_mla", 16},
                                         {"attention.kv_lora_rank", 32},
                                         {"attention.q_lora_rank", 24},
                                         {"rope.dimension_count", 8},
                                         {"leading_dense_block_count", 1},
                                         {"expert_shared_count", 1}});
}

TEST_CASE("gguf: recurrent models and hybrids are what libllama makes of them") {
    load_plugins();
    compare("mamba2",
            state + Keys::Map{{"attention.head_count", 0}, {"attention.head_count_kv", 0}, {"feed_forward_length", 0}});
    compare("lfm2", {{"attention.head_count_kv", few_with_keys}, {"shortconv.l_cache", 3}});
    compare("granitehybrid", state
                                 + Keys::Map{{"attention.head_count_kv", few_with_keys},
                                             {"attention.scale", 0.125F},
                                             {"logit_scale", 2.0F},
                                             {"residual_scale", 1.0F},
                                             {"embedding_scale", 2.0F}});
    compare("nemotron_h", state
                              + Keys::Map{{"attention.head_count_kv", std::vector<std::uint32_t>{0, 0, 2, 0, 0, 2}},
                                          {"feed_forward_length", std::vector<std::uint32_t>{0, 48, 0, 0, 48, 0}}});
    compare("jamba", state + Keys::Map{{"attention.head_count_kv", few_with_keys}});
    compare("qwen3next", state + head + experts
                             + Keys::Map{{"rope.dimension_count", 8},
                                         {"full_attention_interval", 3},
                                         {"expert_shared_feed_forward_length", 32}});
}

} // namespace test_description
