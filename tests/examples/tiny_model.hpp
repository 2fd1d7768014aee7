// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/weights.hpp"
#include "little_endian.hpp"

#include <Eigen/Core>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// The smallest model with both kinds of attention layers and shared heads whose heads together are not as wide as the
/// residual stream.
inline llama::Config tiny_config(llama::Pairing pairing = llama::Pairing::neox) {
    using enum llama::LayerKind;
    llama::Config c;
    c.vocab_size = 32;
    c.hidden_size = 16;
    c.intermediate_size = 24;
    c.num_attention_heads = 4;
    c.num_key_value_heads = 2;
    c.head_dim = 6;
    c.layer_types = {sliding_attention, full_attention, sliding_attention};
    c.sliding_window = 5;
    c.max_position_embeddings = 64;
    c.rope_theta = 100;
    c.rope_pairing = pairing;
    return c;
}

/// The same with recurrent layers. Their channels are in blocks, and are fewer than those of the residual stream.
inline llama::Config tiny_hybrid_config() {
    using enum llama::LayerKind;
    llama::Config c = tiny_config();
    c.layer_types = {recurrent, sliding_attention, recurrent, full_attention};
    c.lru_width = 12;
    c.lru_blocks = 3;
    c.conv1d_width = 4;
    return c;
}

/// The same with the layers of the model shakespeare-hybrid.
inline llama::Config tiny_shakespeare_hybrid_config() {
    using enum llama::LayerKind;
    llama::Config c = tiny_hybrid_config();
    c.layer_types = {recurrent, recurrent, sliding_attention, recurrent, recurrent, sliding_attention, full_attention};
    return c;
}

/// A llama2.c checkpoint has only full layers, and its heads together are as wide as the residual stream.
inline llama::Config llama2c_config() {
    llama::Config c = tiny_config(llama::Pairing::interleaved);
    c.head_dim = 4;
    c.layer_types.assign(2, llama::LayerKind::full_attention);
    c.rope_theta = 10000;
    return c;
}

class RandomWeights {
public:
    explicit RandomWeights(unsigned seed) : random_{seed} {}

    llama::Weights operator()(const llama::Config& c) {
        llama::Weights w;
        w.config = c;
        w.embedding = matrix(c.vocab_size, c.hidden_size, 1);
        for (const llama::LayerKind kind : c.layer_types) w.layers.push_back(layer(c, kind));
        w.norm = norm(c.hidden_size);
        if (!c.tie_word_embeddings) w.classifier = matrix(c.vocab_size, c.hidden_size, 1);
        return w;
    }

private:
    llama::Matrix matrix(int rows, int columns, double scale) {
        std::normal_distribution<double> normal{0, scale};
        llama::Matrix m(rows, columns);
        for (float& x : std::span{m.data(), static_cast<std::size_t>(m.size())})
            x = static_cast<float>(normal(random_));
        return m;
    }

    llama::RowVector norm(int size) { return matrix(1, size, 0.2).array() + 1.0F; }

    llama::LayerWeights layer(const llama::Config& c, llama::LayerKind kind) {
        const double scale = 1 / std::sqrt(c.hidden_size);
        const auto wide = [&](int rows) { return matrix(rows, c.hidden_size, scale); };
        llama::LayerWeights w;
        w.kind = kind;
        w.input_norm = norm(c.hidden_size);
        if (kind == llama::LayerKind::recurrent) {
            w.recurrent = {wide(c.lru_width), wide(c.lru_width), recurrence(c),
                           matrix(c.hidden_size, c.lru_width, scale)};
        } else {
            w.attention = {wide(c.query_size()), wide(c.key_value_size()), wide(c.key_value_size()),
                           matrix(c.hidden_size, c.query_size(), scale)};
        }
        w.feed_forward_norm = norm(c.hidden_size);
        w.feed_forward = {wide(c.intermediate_size), wide(c.intermediate_size),
                          matrix(c.hidden_size, c.intermediate_size, scale)};
        return w;
    }

    llama::RecurrenceWeights recurrence(const llama::Config& c) {
        const auto gate = [&] {
            return llama::BlockGate{matrix(c.lru_width, c.lru_width / c.lru_blocks, 1), matrix(1, c.lru_width, 1)};
        };
        llama::RecurrenceWeights w;
        w.taps = matrix(c.lru_width, c.conv1d_width, 1);
        w.taps_bias = matrix(1, c.lru_width, 1);
        w.decay = -matrix(1, c.lru_width, 1).array().exp(); // keeps most of the state for some tokens
        w.decay_gate = gate();
        w.input_gate = gate();
        return w;
    }

    std::mt19937 random_;
};

/// Writes safetensors files. A test may corrupt `header` or `data` before it takes the bytes.
struct SafetensorsWriter {
    nlohmann::ordered_json header;
    std::string data;

    void add(const std::string& name, const llama::Matrix& m, bool is_vector = false) {
        const std::size_t begin = data.size();
        data += little_endian(m);
        const std::vector<Eigen::Index> shape =
            is_vector ? std::vector{m.cols()} : std::vector<Eigen::Index>{m.rows(), m.cols()};
        header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }

    std::vector<char> bytes() const { return bytes(header.dump()); }

    std::vector<char> bytes(const std::string& text) const {
        const std::string file = little_endian(std::uint64_t{text.size()}) + text + data;
        return {file.begin(), file.end()};
    }
};

inline void add_recurrent(SafetensorsWriter& file, const std::string& prefix, const llama::RecurrentWeights& w) {
    const llama::RecurrenceWeights& r = w.recurrence;
    const std::string unit = prefix + "rg_lru.";
    file.add(prefix + "linear_x.weight", w.input);
    file.add(prefix + "linear_y.weight", w.gate);
    file.add(prefix + "linear_out.weight", w.output);
    file.add(prefix + "conv_weight", r.taps);
    file.add(prefix + "conv_bias", r.taps_bias, true);
    file.add(unit + "recurrent_param", (r.decay.array() / -8).expm1().log().matrix(), true);
    file.add(unit + "recurrent_gate_weight", r.decay_gate.weight);
    file.add(unit + "recurrent_gate_bias", r.decay_gate.bias, true);
    file.add(unit + "input_gate_weight", r.input_gate.weight);
    file.add(unit + "input_gate_bias", r.input_gate.bias, true);
}

/// The file of a model as the training script writes it, but in float.
inline SafetensorsWriter file_of(const llama::Weights& w) {
    const llama::Config& c = w.config;
    SafetensorsWriter file;
    std::string kinds;
    for (const llama::LayerKind kind : c.layer_types) {
        constexpr const char* names[] = {"recurrent", "sliding_attention", "full_attention"};
        kinds += kinds.empty() ? "" : ",";
        kinds += names[static_cast<int>(kind)];
    }
    const bool has_recurrences = c.layers(llama::LayerKind::recurrent) > 0;
    file.header["__metadata__"] = {
        {"format", "cellar-example-1"},
        {"architecture", has_recurrences ? "griffin" : "llama"},
        {"tokenizer", "bytes"},
        {"vocab_size", std::to_string(c.vocab_size)},
        {"hidden_size", std::to_string(c.hidden_size)},
        {"intermediate_size", std::to_string(c.intermediate_size)},
        {"num_hidden_layers", std::to_string(c.layers())},
        {"num_attention_heads", std::to_string(c.num_attention_heads)},
        {"num_key_value_heads", std::to_string(c.num_key_value_heads)},
        {"head_dim", std::to_string(c.head_dim)},
        {"layer_types", kinds},
        {"sliding_window", std::to_string(c.sliding_window)},
        {"rope_theta", std::to_string(c.rope_theta)},
        {"rope_pairing", c.rope_pairing == llama::Pairing::neox ? "neox" : "interleaved"},
        {"rms_norm_eps", "1e-05"},
        {"max_position_embeddings", std::to_string(c.max_position_embeddings)},
        {"tie_word_embeddings", c.tie_word_embeddings ? "true" : "false"},
    };
    if (has_recurrences) {
        file.header["__metadata__"]["lru_width"] = std::to_string(c.lru_width);
        file.header["__metadata__"]["lru_blocks"] = std::to_string(c.lru_blocks);
        file.header["__metadata__"]["conv1d_width"] = std::to_string(c.conv1d_width);
    }
    file.add("model.embed_tokens.weight", w.embedding);
    for (int i = 0; i < c.layers(); ++i) {
        const llama::LayerWeights& layer = w.layers[static_cast<std::size_t>(i)];
        const std::string prefix = "model.layers." + std::to_string(i) + ".";
        file.add(prefix + "input_layernorm.weight", layer.input_norm, true);
        if (layer.kind == llama::LayerKind::recurrent) {
            add_recurrent(file, prefix + "recurrent.", layer.recurrent);
        } else {
            file.add(prefix + "self_attn.q_proj.weight", layer.attention.query);
            file.add(prefix + "self_attn.k_proj.weight", layer.attention.key);
            file.add(prefix + "self_attn.v_proj.weight", layer.attention.value);
            file.add(prefix + "self_attn.o_proj.weight", layer.attention.output);
        }
        file.add(prefix + "post_attention_layernorm.weight", layer.feed_forward_norm, true);
        file.add(prefix + "mlp.gate_proj.weight", layer.feed_forward.gate);
        file.add(prefix + "mlp.up_proj.weight", layer.feed_forward.up);
        file.add(prefix + "mlp.down_proj.weight", layer.feed_forward.down);
    }
    file.add("model.norm.weight", w.norm, true);
    if (!c.tie_word_embeddings) file.add("lm_head.weight", w.classifier);
    return file;
}

/// The llama2.c checkpoint of a model.
inline std::vector<char> checkpoint_of(const llama::Weights& w) {
    const llama::Config& c = w.config;
    std::string bytes;
    const auto integer = [&](std::int32_t value) { bytes += little_endian(value); };
    const auto floats = [&](const auto& m) { bytes += little_endian(m); };
    const auto all = [&](auto member) {
        for (const llama::LayerWeights& layer : w.layers) floats(member(layer));
    };
    for (const int value :
         {c.hidden_size, c.intermediate_size, c.layers(), c.num_attention_heads, c.num_key_value_heads,
          c.tie_word_embeddings ? c.vocab_size : -c.vocab_size, c.max_position_embeddings}) {
        integer(value);
    }
    floats(w.embedding);
    all([](const auto& l) -> const auto& { return l.input_norm; });
    all([](const auto& l) -> const auto& { return l.attention.query; });
    all([](const auto& l) -> const auto& { return l.attention.key; });
    all([](const auto& l) -> const auto& { return l.attention.value; });
    all([](const auto& l) -> const auto& { return l.attention.output; });
    all([](const auto& l) -> const auto& { return l.feed_forward_norm; });
    all([](const auto& l) -> const auto& { return l.feed_forward.gate; });
    all([](const auto& l) -> const auto& { return l.feed_forward.down; });
    all([](const auto& l) -> const auto& { return l.feed_forward.up; });
    floats(w.norm);
    floats(llama::Matrix::Zero(c.max_position_embeddings, c.head_dim).eval());
    if (!c.tie_word_embeddings) floats(w.classifier);
    return {bytes.begin(), bytes.end()};
}

/// Compares the decay with a tolerance, because it is computed from the parameter in the file.
inline bool same(const llama::RecurrentWeights& a, const llama::RecurrentWeights& b) {
    const llama::RecurrenceWeights& x = a.recurrence;
    const llama::RecurrenceWeights& y = b.recurrence;
    return a.input == b.input && a.gate == b.gate && a.output == b.output && x.taps == y.taps
           && x.taps_bias == y.taps_bias && x.decay.isApprox(y.decay, 1e-5F)
           && x.decay_gate.weight == y.decay_gate.weight && x.decay_gate.bias == y.decay_gate.bias
           && x.input_gate.weight == y.input_gate.weight && x.input_gate.bias == y.input_gate.bias;
}

inline bool same(const llama::Weights& a, const llama::Weights& b) {
    bool equal = a.embedding == b.embedding && a.norm == b.norm && a.layers.size() == b.layers.size()
                 && a.classifier.size() == b.classifier.size() && (a.classifier - b.classifier).isZero(0);
    for (std::size_t i = 0; equal && i < a.layers.size(); ++i) {
        const llama::LayerWeights& x = a.layers[i];
        const llama::LayerWeights& y = b.layers[i];
        equal = x.kind == y.kind && x.input_norm == y.input_norm && x.attention.query == y.attention.query
                && x.attention.key == y.attention.key && x.attention.value == y.attention.value
                && x.attention.output == y.attention.output && x.feed_forward_norm == y.feed_forward_norm
                && x.feed_forward.gate == y.feed_forward.gate && x.feed_forward.up == y.feed_forward.up
                && x.feed_forward.down == y.feed_forward.down
                && (x.kind != llama::LayerKind::recurrent || same(x.recurrent, y.recurrent));
    }
    return equal;
}
