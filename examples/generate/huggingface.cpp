// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "huggingface.hpp"

#include <Eigen/Core>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace llama {

namespace {

/// Reads numbers and choices from the metadata of a file. Throws `FileError` if one is not as expected.
class MetadataReader {
public:
    explicit MetadataReader(const Safetensors& file) : file_{file} {}

    const std::string& text(const std::string& key) const {
        const auto found = file_.metadata().find(key);
        if (found == file_.metadata().end()) file_.fail("metadata " + in_quotes(key) + " is missing");
        return found->second;
    }

    int integer(const std::string& key, int low, int high) const {
        const std::string& value = text(key);
        int number = 0;
        const auto [end, error] = std::from_chars(begin(value), last(value), number);
        if (error != std::errc{} || end != last(value) || number < low || number > high) {
            file_.fail("metadata " + in_quotes(key) + " is " + in_quotes(value) + ", expected a number from "
                       + std::to_string(low) + " to " + std::to_string(high));
        }
        return number;
    }

    double positive(const std::string& key) const {
        const std::string& value = text(key);
        double number = 0;
        const auto [end, error] = std::from_chars(begin(value), last(value), number);
        if (error != std::errc{} || end != last(value) || !std::isfinite(number) || number <= 0) {
            file_.fail("metadata " + in_quotes(key) + " is " + in_quotes(value) + ", expected a positive number");
        }
        return number;
    }

    void expect(const std::string& key, std::string_view expected) const {
        if (text(key) != expected) {
            file_.fail("metadata " + in_quotes(key) + " is " + in_quotes(text(key)) + ", expected "
                       + in_quotes(expected));
        }
    }

    /// True if the value is `yes`, false if it is `no`.
    bool choice(const std::string& key, std::string_view yes, std::string_view no) const {
        const std::string& value = text(key);
        if (value != yes && value != no) {
            file_.fail("metadata " + in_quotes(key) + " is " + in_quotes(value) + ", expected " + in_quotes(yes)
                       + " or " + in_quotes(no));
        }
        return value == yes;
    }

    std::vector<LayerKind> layer_types() const {
        std::vector<LayerKind> kinds;
        std::string_view rest = text("layer_types");
        while (true) {
            const std::size_t comma = rest.find(',');
            kinds.push_back(layer_kind(rest.substr(0, comma)));
            if (comma == std::string_view::npos) return kinds;
            rest.remove_prefix(comma + 1);
        }
    }

private:
    static const char* begin(const std::string& text) { return text.data(); }
    static const char* last(const std::string& text) { return text.data() + text.size(); }

    LayerKind layer_kind(std::string_view name) const {
        if (name == "sliding_attention") return LayerKind::sliding_attention;
        if (name == "full_attention") return LayerKind::full_attention;
        if (name == "recurrent") return LayerKind::recurrent;
        file_.fail("metadata 'layer_types' has " + in_quotes(name)
                   + ", expected 'sliding_attention', 'full_attention' or 'recurrent'");
    }

    const Safetensors& file_;
};

/// Reads the tensors of a file. At the end, every one must have been read.
class TensorReader {
public:
    explicit TensorReader(const Safetensors& file) : file_{file} {}

    Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
        const std::vector<float> values = read(name, {rows, columns});
        return Eigen::Map<const Matrix>(values.data(), rows, columns);
    }

    RowVector vector(const std::string& name, std::int64_t size) {
        const std::vector<float> values = read(name, {size});
        return Eigen::Map<const RowVector>(values.data(), size);
    }

    void expect_all_used() const {
        for (const std::string& name : file_.tensor_names()) {
            if (!used_.contains(name)) {
                file_.fail("tensor " + in_quotes(name) + " does not belong to this model");
            }
        }
    }

private:
    std::vector<float> read(const std::string& name, const std::vector<std::int64_t>& shape) {
        used_.insert(name);
        return file_.tensor(name, shape);
    }

    const Safetensors& file_;
    std::set<std::string> used_;
};

AttentionWeights read_attention(TensorReader& file, const Config& c, const std::string& prefix) {
    return {file.matrix(prefix + "q_proj.weight", c.query_size(), c.hidden_size),
            file.matrix(prefix + "k_proj.weight", c.key_value_size(), c.hidden_size),
            file.matrix(prefix + "v_proj.weight", c.key_value_size(), c.hidden_size),
            file.matrix(prefix + "o_proj.weight", c.hidden_size, c.query_size())};
}

RecurrentWeights read_recurrent(TensorReader& file, const Config& c, const std::string& prefix) {
    const std::string unit = prefix + "rg_lru.";
    const auto gate = [&](const std::string& name) {
        return BlockGate{file.matrix(name + "_weight", c.lru_width, c.lru_width / c.lru_blocks),
                         file.vector(name + "_bias", c.lru_width)};
    };
    RecurrentWeights w;
    w.input = file.matrix(prefix + "linear_x.weight", c.lru_width, c.hidden_size);
    w.gate = file.matrix(prefix + "linear_y.weight", c.lru_width, c.hidden_size);
    w.recurrence.taps = file.matrix(prefix + "conv_weight", c.lru_width, c.conv1d_width);
    w.recurrence.taps_bias = file.vector(prefix + "conv_bias", c.lru_width);
    w.recurrence.decay = -8.0F * file.vector(unit + "recurrent_param", c.lru_width).array().exp().log1p();
    w.recurrence.decay_gate = gate(unit + "recurrent_gate");
    w.recurrence.input_gate = gate(unit + "input_gate");
    w.output = file.matrix(prefix + "linear_out.weight", c.hidden_size, c.lru_width);
    return w;
}

LayerWeights read_layer(TensorReader& file, const Config& c, int layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string feed_forward = prefix + "mlp.";
    const int hidden = c.hidden_size;
    LayerWeights w;
    w.kind = c.layer_types[static_cast<std::size_t>(layer)];
    w.input_norm = file.vector(prefix + "input_layernorm.weight", hidden);
    if (w.kind == LayerKind::recurrent) {
        w.recurrent = read_recurrent(file, c, prefix + "recurrent.");
    } else {
        w.attention = read_attention(file, c, prefix + "self_attn.");
    }
    w.feed_forward_norm = file.vector(prefix + "post_attention_layernorm.weight", hidden);
    w.feed_forward.gate = file.matrix(feed_forward + "gate_proj.weight", c.intermediate_size, hidden);
    w.feed_forward.up = file.matrix(feed_forward + "up_proj.weight", c.intermediate_size, hidden);
    w.feed_forward.down = file.matrix(feed_forward + "down_proj.weight", hidden, c.intermediate_size);
    return w;
}

} // namespace

Config read_config(const Safetensors& file) {
    constexpr int large = 1 << 20;
    const MetadataReader metadata{file};
    metadata.expect("format", "cellar-example-1");
    const bool is_llama = metadata.choice("architecture", "llama", "griffin");
    metadata.expect("tokenizer", "bytes");
    Config c;
    c.vocab_size = metadata.integer("vocab_size", 1, 256);
    c.hidden_size = metadata.integer("hidden_size", 1, large);
    c.intermediate_size = metadata.integer("intermediate_size", 1, large);
    c.num_attention_heads = metadata.integer("num_attention_heads", 1, 1024);
    c.num_key_value_heads = metadata.integer("num_key_value_heads", 1, 1024);
    c.head_dim = metadata.integer("head_dim", 2, 1024);
    c.layer_types = metadata.layer_types();
    if (c.layers(LayerKind::sliding_attention) > 0) {
        c.sliding_window = metadata.integer("sliding_window", 1, large);
    }
    if (c.layers(LayerKind::recurrent) > 0) {
        if (is_llama) file.fail("metadata 'layer_types' has 'recurrent', expected none in a 'llama'");
        c.lru_width = metadata.integer("lru_width", 1, large);
        c.lru_blocks = metadata.integer("lru_blocks", 1, large);
        c.conv1d_width = metadata.integer("conv1d_width", 2, 1024);
    }
    c.max_position_embeddings = metadata.integer("max_position_embeddings", 1, large);
    c.rope_theta = metadata.positive("rope_theta");
    c.rope_pairing = metadata.choice("rope_pairing", "neox", "interleaved") ? Pairing::neox : Pairing::interleaved;
    c.rms_norm_eps = static_cast<float>(metadata.positive("rms_norm_eps"));
    c.tie_word_embeddings = metadata.choice("tie_word_embeddings", "true", "false");
    const int layers = metadata.integer("num_hidden_layers", 1, 1024);
    if (layers != c.layers()) {
        file.fail("metadata 'layer_types' names " + std::to_string(c.layers())
                  + " layers, expected num_hidden_layers = " + std::to_string(layers));
    }
    if (const std::string why = contradiction(c); !why.empty()) file.fail(why);
    return c;
}

Weights read_weights(const Safetensors& file) {
    TensorReader tensors{file};
    Weights w;
    w.config = read_config(file);
    const Config& c = w.config;
    w.embedding = tensors.matrix("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
    for (int layer = 0; layer < c.layers(); ++layer) {
        w.layers.push_back(read_layer(tensors, c, layer));
    }
    w.norm = tensors.vector("model.norm.weight", c.hidden_size);
    if (!c.tie_word_embeddings) {
        w.classifier = tensors.matrix("lm_head.weight", c.vocab_size, c.hidden_size);
    }
    tensors.expect_all_used();
    return w;
}

} // namespace llama
