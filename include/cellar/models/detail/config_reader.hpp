// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/config_keys.hpp>
#include <cellar/models/detail/config_classes.hpp>
#include <cellar/models/run_time_description.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cellar::models::detail {

inline constexpr int max_dim = 1 << 18;
inline constexpr int max_tokens = 1 << 30;

/// YaRN's factor for cosines and sines (arXiv:2309.00071, section 3.4).
inline double yarn_magnitude(double factor, double weight = 1.0) {
    return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

/// Reads the rotary parameters of one kind of layers.
class RopeReader {
public:
    /// `kind`: as in the file's list of layer types.
    RopeReader(KeyReader& keys, const ConfigClass& model, const std::string& kind) : keys_{keys}, model_{model} {
        const std::string of_kind = "rope_parameters." + kind + ".";
        own_ = has_any(of_kind);
        at_ = own_                          ? of_kind
              : has_any("rope_parameters.") ? std::string{"rope_parameters."}
                                            : std::string{"rope_scaling."};
        if (!own_ && kind == "sliding_attention") local_ = model.local_base > 0;
    }

    RunTimeRope read(int head_dim) {
        RunTimeRope rope;
        rope.pairing = model_.pairing;
        if (rope.pairing == Pairing::none) return rope;
        keys_.expect_object("rope_parameters");
        keys_.expect_object("rope_scaling");
        rope.base = local_ ? keys_.positive("rope_local_base_freq", model_.local_base)
                           : keys_.positive(at_ + "rope_theta", keys_.positive("rope_theta", model_.base));
        const double part =
            keys_.positive(at_ + "partial_rotary_factor", keys_.positive("partial_rotary_factor", model_.rotated));
        if (part > 1) keys_.fail({"'partial_rotary_factor' is ", KeyReader::printable(part), ", expected at most 1"});
        rope.dims = static_cast<int>(head_dim * std::fmin(part, 1.0));
        if (!local_) scale(rope);
        return rope;
    }

    /// By which a latent's scores are multiplied in addition (DeepSeek-V2, arXiv:2405.04434, and its code).
    double latent_scale() {
        if (type() == "default" || !keys_.has(at_ + "mscale_all_dim")) return 1.0;
        const double magnitude = yarn_magnitude(keys_.positive(at_ + "factor"), keys_.positive(at_ + "mscale_all_dim"));
        return magnitude * magnitude;
    }

private:
    bool has_any(const std::string& at) const {
        constexpr const char* keys[] = {"rope_theta", "rope_type",   "type",
                                        "factor",     "long_factor", "partial_rotary_factor"};
        return std::ranges::any_of(keys, [&](const char* key) { return keys_.has(at + key); });
    }

    std::string type() {
        const bool is_scaled = keys_.has(at_ + "factor") || keys_.has(at_ + "long_factor");
        std::optional<std::string> usual;
        if (!is_scaled) usual = "default";
        if (model_.yarn) usual = "yarn";
        const bool is_old = !keys_.has(at_ + "rope_type") && keys_.has(at_ + "type");
        const std::string found = keys_.text(at_ + (is_old ? "type" : "rope_type"), usual);
        const bool is_long = found == "su" || (model_.name == "phi3" && found == "yarn"); // former names
        return is_long ? "longrope" : found;
    }

    void scale(RunTimeRope& rope) {
        const std::string name = type();
        if (name == "default") return;
        if (name == "linear") {
            rope.scaling = LinearScaling{keys_.positive(at_ + "factor")};
        } else if (name == "llama3") {
            rope.scaling = Llama3Scaling{.factor = keys_.positive(at_ + "factor"),
                                         .original_context = original_context(),
                                         .low_frequency_factor = keys_.positive(at_ + "low_freq_factor"),
                                         .high_frequency_factor = keys_.positive(at_ + "high_freq_factor")};
        } else if (name == "yarn") {
            scale_by_yarn(rope);
        } else if (name == "longrope") {
            scale_by_longrope(rope);
        } else if (name == "dynamic") {
            keys_.fail(
                {"rotary positions are scaled by the length of the text ('dynamic'), which keys that are already "
                 "stored cannot follow"});
        } else {
            keys_.fail({"rotary positions are scaled by ", KeyReader::printable(name),
                        ", expected 'default', 'linear', 'llama3', 'yarn' or 'longrope'"});
        }
    }

    void scale_by_yarn(RunTimeRope& rope) {
        const double original = original_context();
        const std::optional<double> usual = trained_context() / original;
        const double factor = keys_.positive(at_ + "factor", model_.yarn ? std::nullopt : usual);
        rope.scaling = YarnScaling{.factor = factor,
                                   .original_context = original,
                                   .beta_fast = keys_.positive(at_ + "beta_fast", 32.0),
                                   .beta_slow = keys_.positive(at_ + "beta_slow", 1.0),
                                   .whole_pairs = keys_.flag(at_ + "truncate", true)};
        double magnitude = yarn_magnitude(factor);
        if (keys_.has(at_ + "mscale") && keys_.has(at_ + "mscale_all_dim"))
            magnitude = yarn_magnitude(factor, keys_.positive(at_ + "mscale"))
                        / yarn_magnitude(factor, keys_.positive(at_ + "mscale_all_dim"));
        rope.attention_factor = keys_.positive(at_ + "attention_factor", magnitude);
    }

    void scale_by_longrope(RunTimeRope& rope) {
        rope.divisors = divisors(at_ + "short_factor");
        rope.long_divisors = divisors(at_ + "long_factor");
        if (rope.divisors.empty() || rope.long_divisors.empty())
            keys_.fail({"'", at_, "short_factor' or 'long_factor' is missing"});
        rope.original_context = original_context();
        const double factor = keys_.positive(at_ + "factor", trained_context() / rope.original_context);
        const double magnitude =
            factor <= 1 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(std::fmax(rope.original_context, 2.0)));
        rope.attention_factor = keys_.positive(at_ + "attention_factor", magnitude);
    }

    std::vector<float> divisors(const std::string& key) {
        std::vector<float> found;
        for (const double number : keys_.numbers(key)) found.push_back(static_cast<float>(number));
        return found;
    }

    double trained_context() { return keys_.positive("max_position_embeddings", 1.0); }
    double original_context() {
        const std::string key = "original_max_position_embeddings";
        if (!own_ && keys_.has(key)) return keys_.positive(key);
        return keys_.positive(at_ + key, trained_context());
    }

    KeyReader& keys_;
    const ConfigClass& model_;
    std::string at_;     // before the keys
    bool own_;           // the file has parameters for this kind of layers
    bool local_ = false; // a file of the former format, whose sliding layers have a base of their own, and no scaling
};

/// Reads a whole config.json. What is wrong is remembered by the reader of its keys.
class ConfigReader {
public:
    explicit ConfigReader(KeyReader& keys) : keys_{keys} {}

    RunTimeDescription read() {
        const std::string type = keys_.text("model_type");
        const ConfigClass* known = keys_.entry(config_classes, "model_type", type);
        if (known == nullptr) return {};
        model_ = *known;
        if (keys_.flag("use_bidirectional_attention", false))
            keys_.fail(
                {"the model attends to later tokens ('use_bidirectional_attention'), expected causal attention"});
        if (has_encoder()) return read_decoder(type);
        RunTimeDescription found{type, keys_.integer("max_position_embeddings", 0, max_tokens, model_.context), {}};
        const std::vector<LayerKind> kinds = read_kinds();
        if (!keys_.error().empty()) return found;
        found.layers.resize(kinds.size());
        for (std::size_t i = 0; i < kinds.size(); ++i) found.layers[i].kind = kinds[i];
        read_attention(found);
        if (found.count(LayerKind::recurrent) > 0) read_state(found);
        return found;
    }

private:
    int dimension(const std::string& key, std::optional<int> otherwise = std::nullopt) {
        return keys_.integer(key, 1, max_dim, otherwise);
    }

    // ---- a decoder that attends to the results of an encoder

    bool has_encoder() const {
        return model_.kind == ConfigKind::t5 || model_.kind == ConfigKind::whisper || model_.kind == ConfigKind::bart;
    }

    /// A layer of the decoder stands for two: it attends to its own tokens, and then to the encoder's.
    RunTimeDescription read_decoder(const std::string& type) {
        const bool is_t5 = model_.kind == ConfigKind::t5;
        constexpr int most = max_layers / 2;
        const char* const count = !is_t5                            ? "decoder_layers"
                                  : keys_.has("num_decoder_layers") ? "num_decoder_layers"
                                                                    : "num_layers";
        const int layers = keys_.integer(count, 1, most);
        LayerDescription own;
        own.heads = dimension(is_t5 ? "num_heads" : "decoder_attention_heads");
        const int dim = is_t5 ? dimension("d_kv", model_.head_dim) : divided("d_model", own.heads);
        own.shape = {own.heads, dim, dim, -1};
        own.scale = is_t5 ? 1.0 : 1.0 / std::sqrt(double(dim));
        LayerDescription of_encoder = own;
        of_encoder.kind = LayerKind::encoder;
        RunTimeDescription found{type, 0, {}};
        if (model_.kind == ConfigKind::whisper) {
            found.trained_context = keys_.integer("max_target_positions", 0, max_tokens, 448);
            found.input_tokens = keys_.integer("max_source_positions", 0, max_tokens, 1500);
        } else if (model_.kind == ConfigKind::bart) {
            found.trained_context = found.input_tokens = keys_.integer("max_position_embeddings", 0, max_tokens, 1024);
        }
        for (int i = 0; i < layers; ++i) found.layers.insert(found.layers.end(), {own, of_encoder});
        return found;
    }

    // ---- which layer is what

    LayerKind kind_named(const std::string& name) {
        if (name == "full_attention" || name == "attention" || name == "*") return LayerKind::full;
        if (name == "sliding_attention") return LayerKind::sliding;
        if (name == "chunked_attention") return LayerKind::chunked;
        if (name == "linear_attention" || name == "mamba" || name == "conv" || name == "M") return LayerKind::recurrent;
        if (name == "mlp" || name == "moe" || name == "-" || name == "E") return LayerKind::nothing;
        keys_.fail({"a layer is of the type ", KeyReader::printable(name), ", which is not known"});
        return LayerKind::full;
    }

    std::vector<LayerKind> read_kinds() {
        std::vector<std::string> names = keys_.texts("layer_types");
        if (names.empty()) names = keys_.texts("layers_block_type");
        if (names.empty() && model_.kind == ConfigKind::nemotron_h)
            for (const char letter : keys_.text("hybrid_override_pattern")) names.emplace_back(1, letter);
        const int listed = static_cast<int>(names.size());
        const bool counted = model_.kind == ConfigKind::nemotron_h;
        const int layers =
            keys_.integer("num_hidden_layers", 1, max_layers, counted ? std::optional{listed} : std::nullopt);
        if (listed != 0 && listed != layers)
            keys_.fail({"'num_hidden_layers' is ", layers, ", and ", listed, " layer types are listed"});
        std::vector<LayerKind> kinds;
        kinds.reserve(static_cast<std::size_t>(std::max(listed, layers)));
        for (const std::string& name : names) kinds.push_back(kind_named(name));
        for (int i = listed; i < layers; ++i) kinds.push_back(kind_by_rule(i, layers));
        return kinds;
    }

    /// LFM2's list of layers with attention. Without a list, all have it.
    bool is_listed_full(int layer, int layers) {
        const std::vector<int> full = keys_.integers("full_attn_idxs", 0, layers - 1);
        return full.empty() || std::find(full.begin(), full.end(), layer) != full.end();
    }

    /// Jamba's: one of each period.
    bool is_full_of_period(int layer) {
        const int period = keys_.integer("attn_layer_period", 1, max_layers, 8);
        const int offset = keys_.integer("attn_layer_offset", 0, max_layers, 4);
        if (offset >= period)
            keys_.fail(
                {"'attn_layer_offset' is ", offset, ", expected less than 'attn_layer_period', which is ", period});
        return layer % period == offset;
    }

    // If the file does not list them.
    LayerKind kind_by_rule(int layer, int layers) {
        switch (model_.kind) {
        case ConfigKind::t5:
        case ConfigKind::whisper:
        case ConfigKind::bart:
            break;
        case ConfigKind::attention:
            return is_local(layer) ? (model_.windows == Windows::rotated ? LayerKind::chunked : LayerKind::sliding)
                                   : LayerKind::full;
        case ConfigKind::latent:
            return LayerKind::full;
        case ConfigKind::qwen3_next:
            return (layer + 1) % keys_.integer("full_attention_interval", 1, max_layers, 4) == 0 ? LayerKind::full
                                                                                                 : LayerKind::recurrent;
        case ConfigKind::jamba:
            return is_full_of_period(layer) ? LayerKind::full : LayerKind::recurrent;
        case ConfigKind::lfm2:
            return is_listed_full(layer, layers) ? LayerKind::full : LayerKind::recurrent;
        case ConfigKind::granite_hybrid:
        case ConfigKind::nemotron_h:
        case ConfigKind::mamba2:
            return LayerKind::recurrent;
        }
        return LayerKind::full;
    }

    bool is_local(int layer) {
        if (window() == 0) return false;
        const bool used = keys_.flag("use_sliding_window", false);
        switch (model_.windows) {
        case Windows::none:
            return false;
        case Windows::every:
            return true;
        case Windows::every_used:
            return used;
        case Windows::late:
            return used && layer >= keys_.integer("max_window_layers", 0, max_layers, 28);
        case Windows::period:
            return (layer + 1) % keys_.integer("sliding_window_pattern", 1, max_layers, model_.period) != 0;
        case Windows::rotated:
            return is_rotated(layer);
        case Windows::unrotated:
            return used && !is_rotated(layer);
        }
        return false;
    }

    /// False for the layers of a class that leaves some without rotary positions.
    bool is_rotated(int layer) {
        const bool some_are_not = model_.windows == Windows::rotated || model_.windows == Windows::unrotated;
        if (!some_are_not) return true;
        // 1: the layer has them. An empty list stands for none.
        if (!keys_.numbers("no_rope_layers").empty()) return keys_.integer_of("no_rope_layers", layer, 0, 1) == 1;
        return (layer + 1) % keys_.integer("no_rope_layer_interval", 1, max_layers, model_.period) != 0;
    }

    /// 0: there is none. A file can say so by null.
    int window() {
        const std::string key = model_.windows == Windows::rotated ? "attention_chunk_size" : "sliding_window";
        return keys_.integer(key, 0, max_tokens, keys_.mentions(key) ? 0 : model_.window);
    }

    // ---- attention

    void read_attention(RunTimeDescription& found) {
        const auto has_keys = [](const LayerDescription& layer) {
            return layer.kind != LayerKind::recurrent && layer.kind != LayerKind::nothing;
        };
        if (std::none_of(found.layers.begin(), found.layers.end(), has_keys)) return;
        LayerDescription layer;
        layer.heads = dimension("num_attention_heads", given(model_.heads));
        layer.soft_cap = soft_cap();
        layer.learned_sinks = model_.learned_sinks;
        if (model_.kind == ConfigKind::latent) return read_latent(found, layer);
        const int dim = head_dim(layer.heads);
        const int kv_heads = model_.kv_heads != 0 ? model_.kv_heads : layer.heads;
        layer.shape = {dimension("num_key_value_heads", kv_heads), dim, dim, -1};
        layer.scale = scale(dim);
        if (model_.kind == ConfigKind::granite_hybrid && !keys_.is("position_embedding_type", "rope"))
            model_.pairing = Pairing::none;
        const RunTimeRope full = RopeReader{keys_, model_, "full_attention"}.read(dim);
        const RunTimeRope sliding = RopeReader{keys_, model_, "sliding_attention"}.read(dim);
        for (std::size_t i = 0; i < found.layers.size(); ++i) {
            if (!has_keys(found.layers[i])) continue;
            layer.kind = found.layers[i].kind;
            layer.window = layer.kind == LayerKind::full ? 0 : window();
            layer.rope = layer.kind == LayerKind::sliding ? sliding : full;
            if (!is_rotated(static_cast<int>(i))) layer.rope = {};
            found.layers[i] = layer;
        }
    }

    static std::optional<int> given(int number) { return number != 0 ? std::optional{number} : std::nullopt; }

    int head_dim(int heads) {
        if (keys_.has("head_dim") || model_.head_dim != 0) return dimension("head_dim", model_.head_dim);
        return divided("hidden_size", heads);
    }
    int divided(const std::string& key, int heads) {
        const int hidden = dimension(key);
        if (hidden % heads != 0)
            keys_.fail({"'", key, "' is ", hidden, ", and cannot be divided into ", heads, " heads"});
        return std::max(hidden / heads, 1);
    }

    void read_latent(RunTimeDescription& found, LayerDescription layer) {
        const int latent = dimension("kv_lora_rank");
        const int rotated = dimension("qk_rope_head_dim");
        const int plain = dimension("qk_nope_head_dim");
        if (!keys_.flag("rope_interleave", true)) model_.pairing = Pairing::neox;
        RopeReader rope{keys_, model_, "full_attention"};
        layer.kind = LayerKind::full;
        layer.shape = {1, latent + rotated, 0, -1};
        layer.rope = rope.read(rotated);
        layer.rope.begin = latent;
        layer.scale = rope.latent_scale() / std::sqrt(double(plain) + rotated);
        for (LayerDescription& one : found.layers) one = layer;
    }

    double scale(int head_dim) {
        if (model_.score_dim != 0) return 1.0 / std::sqrt(keys_.positive("query_pre_attn_scalar", model_.score_dim));
        if (keys_.has("attention_multiplier")) return keys_.positive("attention_multiplier");
        return 1.0 / std::sqrt(double(head_dim));
    }

    double soft_cap() {
        const std::string key = "attn_logit_softcapping";
        return keys_.positive(key, keys_.mentions(key) ? 0.0 : model_.soft_cap);
    }

    // ---- recurrent layers

    void read_state(RunTimeDescription& found) {
        const std::vector<StateDescription> state = state_tensors();
        for (LayerDescription& layer : found.layers)
            if (layer.kind == LayerKind::recurrent) layer.state = state;
    }

    /// Of a convolution, the inputs that it needs besides the newest one.
    std::vector<StateDescription> state_tensors() {
        switch (model_.kind) {
        case ConfigKind::qwen3_next:
            return delta_state();
        case ConfigKind::granite_hybrid: {
            const int heads = dimension("mamba_n_heads", 128);
            const std::int64_t inner = dimension("mamba_expand", 2) * std::int64_t{dimension("hidden_size")};
            return mamba2_state(heads, inner, "mamba_d_head", "mamba_n_groups", 1, "mamba_d_state", 256,
                                "mamba_d_conv");
        }
        case ConfigKind::nemotron_h: {
            const int heads = dimension("mamba_num_heads", 128);
            const std::int64_t inner = std::int64_t{heads} * dimension("mamba_head_dim", 64);
            return mamba2_state(heads, inner, "mamba_head_dim", "n_groups", 8, "ssm_state_size", 128, "conv_kernel");
        }
        case ConfigKind::mamba2: {
            const int heads = dimension("num_heads", 128);
            const std::int64_t inner = dimension("expand", 2) * std::int64_t{dimension("hidden_size")};
            return mamba2_state(heads, inner, "head_dim", "n_groups", 8, "state_size", 128, "conv_kernel");
        }
        case ConfigKind::jamba: {
            const int inner = channel_count(dimension("mamba_expand", 2) * std::int64_t{dimension("hidden_size")});
            return {{"conv", {convolution("mamba_d_conv", 4), inner}},
                    {"ssm", {inner, dimension("mamba_d_state", 16)}}};
        }
        case ConfigKind::lfm2:
            return {{"conv", {convolution("conv_L_cache", 3), dimension("hidden_size")}}};
        default:
            break;
        }
        keys_.fail({"a layer is recurrent, expected none in this model_type"});
        return {};
    }

    std::vector<StateDescription> delta_state() {
        const int key_heads = dimension("linear_num_key_heads", 16);
        const int value_heads = dimension("linear_num_value_heads", 32);
        if (value_heads % key_heads != 0)
            keys_.fail({"a recurrent layer has ", value_heads, " heads of values, expected a multiple of its ",
                        key_heads, " heads of keys"});
        const int key_dim = dimension("linear_key_head_dim", 128);
        const int value_dim = dimension("linear_value_head_dim", 128);
        const std::int64_t channels = 2 * std::int64_t{key_heads} * key_dim + std::int64_t{value_heads} * value_dim;
        return {{"conv", {convolution("linear_conv_kernel_dim", 4), channel_count(channels)}},
                {"delta", {value_heads, key_dim, value_dim}}};
    }

    std::vector<StateDescription> mamba2_state(int heads, std::int64_t inner, const char* head_dim, const char* groups,
                                               int usual_groups, const char* states, int usual_states,
                                               const char* kernel) {
        if (inner % heads != 0)
            keys_.fail({inner, " channels of a recurrent layer cannot be divided into its ", heads, " heads"});
        const int dim = static_cast<int>(inner / heads);
        if (!keys_.is(head_dim, "auto") && dimension(head_dim, dim) != dim)
            keys_.fail({"'", head_dim, "' is ", dimension(head_dim), ", expected ", dim, " for ", inner,
                        " channels in ", heads, " heads"});
        const int group_count = dimension(groups, usual_groups);
        if (heads % group_count != 0)
            keys_.fail({heads, " heads of a recurrent layer cannot be divided into its ", group_count, " groups"});
        const int size = dimension(states, usual_states);
        const std::int64_t channels = inner + 2 * std::int64_t{group_count} * size;
        return {{"conv", {convolution(kernel, 4), channel_count(channels)}}, {"ssm", {heads, dim, size}}};
    }

    int convolution(const std::string& key, int usual) { return keys_.integer(key, 2, 1024, usual) - 1; }
    int channel_count(std::int64_t channels) {
        if (channels <= max_state) return static_cast<int>(channels);
        keys_.fail({"a recurrent layer has ", channels, " channels, expected at most ", max_state});
        return 1;
    }

    KeyReader& keys_;
    ConfigClass model_{};
};

} // namespace cellar::models::detail
