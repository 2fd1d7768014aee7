// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/config_keys.hpp>
#include <cellar/models/detail/config_reader.hpp>
#include <cellar/models/run_time_description.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cellar::models::detail {

/// Which layers of an architecture are not full.
enum class GgufLayers {
    full,        ///< none
    sliding,     ///< those that the window pattern names
    chunked,     ///< all but those without rotary positions
    without_kv,  ///< those without heads of keys are recurrent
    without_ffn, ///< of those without heads of keys, the ones without a feed-forward network are recurrent
    interval,    ///< all but the last one of each interval are recurrent
    recurrent,   ///< all are recurrent
};

enum class GgufState { none, mamba, mamba2, delta, short_convolution };

/// What https://github.com/ggml-org/llama.cpp, src/llama-model.cpp, knows of an architecture besides the file's keys.
struct GgufArchitecture {
    std::string_view name{};
    Pairing pairing = Pairing::neox;
    GgufLayers layers = GgufLayers::full;
    GgufState state = GgufState::none;
    int period = 0;          ///< of windows; 0: none
    int window = 0;          ///< if the file has none
    int plain_every = 0;     ///< each such layer has no rotary positions; 0: none
    double local_base = 0.0; ///< of sliding layers, which are not scaled; 0: as the others
    double soft_cap = 0.0;
    int layers_of_largest = 0; ///< the model with so many layers scales by embedding_length / heads
    bool learned_sinks = false;
};

inline constexpr GgufArchitecture gguf_architectures[] = {
    {.name = "llama", .pairing = Pairing::interleaved},
    {.name = "qwen2"},
    {.name = "qwen3"},
    {.name = "qwen3moe"},
    {.name = "phi3"}, // llama.cpp ignores its window
    {.name = "smollm3", .pairing = Pairing::interleaved, .plain_every = 4},
    {.name = "granite", .pairing = Pairing::interleaved},
    {.name = "gemma2",
     .layers = GgufLayers::sliding,
     .period = 2,
     .window = 4096,
     .soft_cap = 50.0,
     .layers_of_largest = 46},
    {.name = "gemma3", .layers = GgufLayers::sliding, .period = 6, .local_base = 10000.0, .layers_of_largest = 62},
    {.name = "gpt-oss", .layers = GgufLayers::sliding, .period = 2, .learned_sinks = true},
    {.name = "llama4",
     .pairing = Pairing::interleaved,
     .layers = GgufLayers::chunked,
     .window = 8192,
     .plain_every = 4},
    {.name = "deepseek2", .pairing = Pairing::interleaved},
    {.name = "qwen3next", .layers = GgufLayers::interval, .state = GgufState::delta},
    {.name = "granitehybrid",
     .pairing = Pairing::interleaved,
     .layers = GgufLayers::without_kv,
     .state = GgufState::mamba2},
    {.name = "nemotron_h", .pairing = Pairing::none, .layers = GgufLayers::without_ffn, .state = GgufState::mamba2},
    {.name = "jamba", .pairing = Pairing::none, .layers = GgufLayers::without_kv, .state = GgufState::mamba},
    {.name = "lfm2", .layers = GgufLayers::without_kv, .state = GgufState::short_convolution},
    {.name = "mamba2", .pairing = Pairing::none, .layers = GgufLayers::recurrent, .state = GgufState::mamba2},
};

/// Reads the keys of a GGUF file. What is wrong is remembered by the reader of its keys.
class GgufReader {
public:
    GgufReader(KeyReader& keys, std::string architecture, std::span<const float> divisors,
               std::span<const float> long_divisors)
        : keys_{keys},
          name_{std::move(architecture)},
          divisors_(divisors.begin(), divisors.end()),
          long_divisors_(long_divisors.begin(), long_divisors.end()) {}

    RunTimeDescription read() {
        const GgufArchitecture* known = keys_.entry(gguf_architectures, "architecture", name_);
        if (known == nullptr) return {};
        model_ = *known;
        // Layers that only predict drafts are the last ones.
        const int layers =
            keys_.integer("block_count", 1, max_layers) - keys_.integer("nextn_predict_layers", 0, max_layers, 0);
        RunTimeDescription found{name_, keys_.integer("context_length", 0, max_tokens, 0), {}};
        if (model_.layers != GgufLayers::recurrent) read_ropes();
        for (int i = 0; i < layers && keys_.error().empty(); ++i) found.layers.push_back(read_layer(i));
        return found;
    }

private:
    int dimension(const std::string& key, std::optional<int> otherwise = std::nullopt) {
        return keys_.integer(key, 1, max_dim, otherwise);
    }

    LayerDescription read_layer(int index) {
        LayerDescription layer;
        layer.kind = kind_of(index);
        if (layer.kind == LayerKind::nothing) return layer;
        if (layer.kind == LayerKind::recurrent) {
            layer.state = state_tensors();
            return layer;
        }
        if (layer.kind != LayerKind::full) layer.window = window();
        layer.heads = heads(index);
        layer.learned_sinks = model_.learned_sinks;
        if (model_.soft_cap > 0) layer.soft_cap = keys_.positive("attn_logit_softcapping", model_.soft_cap);
        if (!is_plain(index)) layer.rope = layer.kind == LayerKind::sliding ? sliding_rope_ : rope_;
        if (keys_.has("attention.kv_lora_rank")) {
            read_latent(layer);
        } else {
            layer.shape = {kv_heads(index), key_dim(), dimension("attention.value_length", default_dim()), -1};
            layer.scale = scale(index);
        }
        return layer;
    }

    LayerKind kind_of(int layer) {
        switch (model_.layers) {
        case GgufLayers::full:
            return LayerKind::full;
        case GgufLayers::sliding:
            return window() != 0 && is_sliding(layer) ? LayerKind::sliding : LayerKind::full;
        case GgufLayers::chunked:
            return is_plain(layer) || window() == 0 ? LayerKind::full : LayerKind::chunked;
        case GgufLayers::without_kv:
            return kv_heads(layer) != 0 ? LayerKind::full : LayerKind::recurrent;
        case GgufLayers::without_ffn:
            if (kv_heads(layer) != 0) return LayerKind::full;
            return keys_.integer_of("feed_forward_length", layer, 0, INT32_MAX) == 0 ? LayerKind::recurrent
                                                                                     : LayerKind::nothing;
        case GgufLayers::interval:
            return (layer + 1) % keys_.integer("full_attention_interval", 1, max_layers, 4) == 0 ? LayerKind::full
                                                                                                 : LayerKind::recurrent;
        case GgufLayers::recurrent:
            return LayerKind::recurrent;
        }
        return LayerKind::full;
    }

    int window() {
        const int found = keys_.integer("attention.sliding_window", 0, max_tokens, model_.window);
        return model_.layers == GgufLayers::chunked && found != 0 ? model_.window : found; // as in llama.cpp
    }
    /// Without rotary positions. A file of Llama 4's architecture without chunks has no such layers.
    bool is_plain(int layer) {
        if (model_.plain_every == 0 || (layer + 1) % model_.plain_every != 0) return false;
        return model_.layers != GgufLayers::chunked || window() != 0;
    }
    /// A file has a list of them, or a period.
    bool is_sliding(int layer) {
        const std::string key = "attention.sliding_window_pattern";
        if (keys_.is_list(key)) return keys_.integer_of(key, layer, 0, 1) == 1;
        return (layer + 1) % keys_.integer(key, 1, max_layers, model_.period) != 0;
    }

    int heads(int layer) { return keys_.integer_of("attention.head_count", layer, 1, max_dim); }
    int kv_heads(int layer) {
        const int lowest = model_.layers == GgufLayers::without_kv || model_.layers == GgufLayers::without_ffn ? 0 : 1;
        if (!keys_.has("attention.head_count_kv")) return heads(layer);
        return keys_.integer_of("attention.head_count_kv", layer, lowest, max_dim);
    }
    int default_dim() { return std::max(dimension("embedding_length") / std::max(most_heads(), 1), 1); }
    // The first layers of a hybrid may have none.
    int most_heads() {
        if (!keys_.is_list("attention.head_count")) return keys_.integer("attention.head_count", 0, max_dim);
        const std::vector<double> all = keys_.numbers("attention.head_count");
        const double most = all.empty() ? 0 : *std::max_element(all.begin(), all.end());
        return most >= 0 && most <= max_dim ? static_cast<int>(most) : 0;
    }
    int key_dim() { return keys_.has("attention.key_length") ? dimension("attention.key_length") : default_dim(); }

    double scale(int layer) {
        if (keys_.has("attention.scale")) return keys_.positive("attention.scale");
        const bool is_largest =
            model_.layers_of_largest != 0 && keys_.integer("block_count", 1, max_layers) == model_.layers_of_largest;
        const double dim = is_largest ? double(dimension("embedding_length")) / heads(layer) : double(key_dim());
        return 1.0 / std::sqrt(dim);
    }

    void read_latent(LayerDescription& layer) {
        const int latent = dimension("attention.kv_lora_rank");
        layer.shape = {1, latent + layer.rope.dims, 0, -1};
        layer.rope.begin = latent;
        const int dim = keys_.has("attention.key_length_mla") ? dimension("attention.key_length_mla") : key_dim();
        layer.scale = 1.0 / std::sqrt(double(dim));
        const auto* const yarn = std::get_if<YarnScaling>(&layer.rope.scaling);
        if (yarn == nullptr || !keys_.has("rope.scaling.yarn_log_multiplier")) return;
        // The file's number includes the tenth of YaRN's formula.
        const double magnitude = 1.0 + keys_.positive("rope.scaling.yarn_log_multiplier") * std::log(yarn->factor);
        layer.scale *= magnitude * magnitude;
        layer.rope.attention_factor = 1.0;
    }

    // ---- rotary positions

    void read_ropes() {
        rope_.pairing = sliding_rope_.pairing = model_.pairing;
        // In Granite models, this key decides whether there are rotary positions at all.
        const bool is_granite = model_.name == "granite" || model_.name == "granitehybrid";
        if (is_granite && !keys_.flag("rope.scaling.finetuned", true)) rope_.pairing = Pairing::none;
        if (rope_.pairing == Pairing::none) return;
        rope_.dims = keys_.has("rope.dimension_count") ? dimension("rope.dimension_count") : key_dim();
        rope_.base = keys_.positive("rope.freq_base", 10000.0);
        rope_.divisors = divisors_;
        rope_.long_divisors = long_divisors_;
        rope_.original_context =
            keys_.positive("rope.scaling.original_context_length", keys_.positive("context_length", 1.0));
        sliding_rope_ = rope_;
        read_scaling();
        if (model_.local_base > 0) {
            sliding_rope_.base = keys_.positive("rope.freq_base_swa", model_.local_base);
        } else {
            sliding_rope_ = rope_;
            sliding_rope_.base = keys_.positive("rope.freq_base_swa", rope_.base);
        }
    }

    void read_scaling() {
        const std::string type = keys_.text("rope.scaling.type", "linear");
        const double factor = keys_.positive("rope.scaling.factor", keys_.positive("rope.scale_linear", 1.0));
        if (type == "linear") {
            if (factor != 1.0) rope_.scaling = LinearScaling{factor};
        } else if (type == "yarn") {
            // ggml's ramp begins and ends at whole pairs, for every model.
            rope_.scaling = YarnScaling{.factor = factor,
                                        .original_context = rope_.original_context,
                                        .beta_fast = keys_.positive("rope.scaling.yarn_beta_fast", 32.0),
                                        .beta_slow = keys_.positive("rope.scaling.yarn_beta_slow", 1.0)};
            rope_.attention_factor = yarn_magnitude(factor) * keys_.positive("rope.scaling.attn_factor", 1.0);
        } else if (type == "longrope") {
            if (divisors_.empty() || long_divisors_.empty())
                keys_.fail(
                    {"rotary positions are scaled by LongRoPE, expected the tensors rope_factors_short.weight and "
                     "rope_factors_long.weight as divisors"});
            rope_.attention_factor = keys_.positive("rope.scaling.attn_factor", 1.0);
        } else if (type != "none") {
            keys_.fail({"'rope.scaling.type' is ", KeyReader::printable(type),
                        ", expected 'none', 'linear', 'yarn' or 'longrope'"});
        }
    }

    // ---- recurrent layers

    std::vector<StateDescription> state_tensors() {
        if (model_.state == GgufState::short_convolution)
            return {{"conv", {keys_.integer("shortconv.l_cache", 2, 1024) - 1, dimension("embedding_length")}}};
        const int inner = dimension("ssm.inner_size");
        const int size = dimension("ssm.state_size");
        const int convolution = keys_.integer("ssm.conv_kernel", 2, 1024) - 1;
        if (model_.state == GgufState::mamba) return {{"conv", {convolution, inner}}, {"ssm", {inner, size}}};
        const int heads = dimension("ssm.time_step_rank");
        if (inner % heads != 0)
            keys_.fail({"'ssm.inner_size' is ", inner, ", and cannot be divided into ", heads, " heads"});
        const std::int64_t channels = inner + 2 * std::int64_t{dimension("ssm.group_count")} * size;
        if (channels > max_state) keys_.fail({"a recurrent layer has ", channels, " channels, expected fewer"});
        const StateDescription conv{"conv", {convolution, static_cast<int>(std::min(channels, max_state))}};
        if (model_.state == GgufState::delta) return {conv, {"delta", {heads, size, inner / heads}}};
        return {conv, {"ssm", {heads, inner / heads, size}}};
    }

    KeyReader& keys_;
    std::string name_;
    std::vector<float> divisors_;
    std::vector<float> long_divisors_;
    GgufArchitecture model_{};
    RunTimeRope rope_{};
    RunTimeRope sliding_rope_{};
};

} // namespace cellar::models::detail
