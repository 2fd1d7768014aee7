// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "decoder.hpp"

#include <cellar/attention/attend.hpp>
#include <cellar/models/config.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <generate/arithmetic.hpp>
#include <stdexcept>
#include <utility>

namespace folder {

namespace models = cellar::models;

namespace {

/// What of a config is not about memory.
class Numbers {
public:
    explicit Numbers(const ModelFolder& folder)
        : path_{folder.path_of("config.json")},
          json_(folder.config().contains("text_config") ? folder.config().at("text_config") : folder.config()) {}

    int integer(const char* key) const {
        const auto found = json_.find(key);
        if (found != json_.end() && found->is_number_integer() && *found > 0 && *found < (1 << 24)) return *found;
        throw llama::FileError{path_, llama::in_quotes(key) + " is missing, or not a positive integer"};
    }
    float positive(const char* key, float otherwise) const {
        const auto found = json_.find(key);
        return found != json_.end() && found->is_number() && *found > 0 ? found->get<float>() : otherwise;
    }
    int vocabulary(int otherwise) const { return json_.contains("vocab_size") ? integer("vocab_size") : otherwise; }

private:
    std::string path_;
    nlohmann::json json_;
};

template <class T>
T value_of(models::ModelResult<T> result) {
    if (!result) throw std::runtime_error{result.error().message};
    return std::move(result).value();
}

bool is_known(const std::string& architecture) {
    for (const char* const name : {"llama", "mistral", "qwen2", "qwen3", "gemma3_text"})
        if (architecture == name) return true;
    return false;
}

/// [tokens, heads, dim]
auto heads_of(const Matrix& rows, int dim) {
    return cellar::contiguous_view(rows.data(), rows.rows(), rows.cols() / dim, dim);
}

} // namespace

Decoder::Decoder(const ModelFolder& folder) : model_{value_of(models::from_config(folder.config()))} {
    if (!is_known(model_.architecture))
        throw std::runtime_error{"the model is a " + llama::in_quotes(model_.architecture)
                                 + ", expected llama, mistral, qwen2, qwen3 or gemma3_text"};
    const Numbers numbers{folder};
    is_gemma_ = model_.architecture == "gemma3_text";
    hidden_ = numbers.integer("hidden_size");
    intermediate_ = numbers.integer("intermediate_size");
    vocabulary_ = numbers.vocabulary(is_gemma_ ? 262208 : 0);
    epsilon_ = numbers.positive("rms_norm_eps", 1e-6F);
    for (const char* const prefix : {"model.", "language_model.model.", "model.language_model."})
        if (folder.has(prefix + std::string{"embed_tokens.weight"})) prefix_ = prefix;
    embedding_ = folder.matrix(prefix_ + "embed_tokens.weight", vocabulary_, hidden_);
    if (folder.has("lm_head.weight")) classifier_ = folder.matrix("lm_head.weight", vocabulary_, hidden_);
    norm_ = norm_weight(folder, prefix_ + "norm.weight", hidden_);
    for (int i = 0; i < static_cast<int>(model_.layers.size()); ++i) layers_.push_back(read_layer(folder, i));
}

/// Gemma's files have what is added to 1.
RowVector Decoder::norm_weight(const ModelFolder& folder, const std::string& name, int size) const {
    RowVector weight = folder.vector(name, size);
    if (is_gemma_) weight.array() += 1.0F;
    return weight;
}

Decoder::Layer Decoder::read_layer(const ModelFolder& folder, int index) const {
    const models::LayerDescription& layer = model_.layers[static_cast<std::size_t>(index)];
    const std::string at = prefix_ + "layers." + std::to_string(index) + ".";
    const std::string attention = at + "self_attn.";
    const int dim = layer.shape.key_dim;
    const int queries = layer.heads * dim;
    const int keys = layer.shape.kv_heads * dim;
    Layer read;
    read.query = folder.matrix(attention + "q_proj.weight", queries, hidden_);
    read.key = folder.matrix(attention + "k_proj.weight", keys, hidden_);
    read.value = folder.matrix(attention + "v_proj.weight", keys, hidden_);
    read.output = folder.matrix(attention + "o_proj.weight", hidden_, queries);
    if (folder.has(attention + "q_proj.bias")) {
        read.query_bias = folder.vector(attention + "q_proj.bias", queries);
        read.key_bias = folder.vector(attention + "k_proj.bias", keys);
        read.value_bias = folder.vector(attention + "v_proj.bias", keys);
    }
    if (folder.has(attention + "q_norm.weight")) {
        read.query_norm = norm_weight(folder, attention + "q_norm.weight", dim);
        read.key_norm = norm_weight(folder, attention + "k_norm.weight", dim);
    }
    read.gate = folder.matrix(at + "mlp.gate_proj.weight", intermediate_, hidden_);
    read.up = folder.matrix(at + "mlp.up_proj.weight", intermediate_, hidden_);
    read.down = folder.matrix(at + "mlp.down_proj.weight", hidden_, intermediate_);
    read.input_norm = norm_weight(folder, at + "input_layernorm.weight", hidden_);
    const char* const before = is_gemma_ ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
    read.feed_forward_norm = norm_weight(folder, at + before, hidden_);
    if (is_gemma_) {
        read.attention_norm = norm_weight(folder, at + "post_attention_layernorm.weight", hidden_);
        read.output_norm = norm_weight(folder, at + "post_feedforward_layernorm.weight", hidden_);
    }
    return read;
}

std::int64_t Decoder::memory_bytes(const models::MemoryLimits& limits) const {
    return value_of(models::memory_bytes<Memory>(model_, limits));
}
Memory Decoder::make_memory(const models::MemoryLimits& limits) const {
    return value_of(models::make_memory<Memory>(model_, limits));
}

cellar::Result<Matrix> Decoder::forward(Memory& memory, cellar::Sequence sequence, cellar::Position first,
                                        std::span<const int> tokens) const {
    const auto count = static_cast<std::int32_t>(tokens.size());
    auto pass = memory.begin(cellar::BatchBuilder{sequence, first, count});
    if (!pass) return pass.error();
    Matrix x(count, hidden_);
    for (std::size_t i = 0; i < tokens.size(); ++i) x.row(static_cast<Eigen::Index>(i)) = embedding_.row(tokens[i]);
    if (is_gemma_) x *= std::sqrt(static_cast<float>(hidden_));
    for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
        const Layer& layer = layers_[static_cast<std::size_t>(i)];
        const Matrix attended = attend(*pass, i, normed(x, layer.input_norm), first.value);
        x += is_gemma_ ? normed(attended, layer.attention_norm) : attended;
        const Matrix fed = feed_forward(layer, normed(x, layer.feed_forward_norm));
        x += is_gemma_ ? normed(fed, layer.output_norm) : fed;
    }
    pass->commit();
    return Matrix{normed(x, norm_) * (classifier_.size() != 0 ? classifier_ : embedding_).transpose()};
}

Matrix Decoder::attend(cellar::PassOf<Memory>& pass, int index, const Matrix& x, int first) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const models::LayerDescription& description = model_.layers[static_cast<std::size_t>(index)];
    const int dim = description.shape.key_dim;
    Matrix queries = x * layer.query.transpose();
    Matrix keys = x * layer.key.transpose();
    Matrix values = x * layer.value.transpose();
    if (layer.query_bias.size() != 0) {
        queries.rowwise() += layer.query_bias;
        keys.rowwise() += layer.key_bias;
        values.rowwise() += layer.value_bias;
    }
    if (layer.query_norm.size() != 0) {
        const auto by_head = [&](const Matrix& rows) { return rows.reshaped<Eigen::RowMajor>(rows.size() / dim, dim); };
        const Eigen::Index tokens = x.rows();
        queries = Matrix{normed(by_head(queries), layer.query_norm).reshaped<Eigen::RowMajor>(tokens, queries.cols())};
        keys = Matrix{normed(by_head(keys), layer.key_norm).reshaped<Eigen::RowMajor>(tokens, keys.cols())};
    }
    rotate(queries, description, first);
    rotate(keys, description, first);
    Matrix out(x.rows(), queries.cols());
    const cellar::AttentionOptions options{.scale = static_cast<float>(description.scale),
                                           .soft_cap = static_cast<float>(description.soft_cap)};
    pass.visit(index, [&](auto& own, int layer_of_member) {
        if constexpr (requires { own.history(); }) { // every layer has a cache
            own.put(layer_of_member, heads_of(keys, dim), heads_of(values, dim));
            cellar::attend(own, layer_of_member, heads_of(queries, dim),
                           cellar::contiguous_view(out.data(), out.rows(), description.heads, dim), options);
        }
    });
    return out * layer.output.transpose();
}

/// Pair i is the elements i and i + pairs of a head.
void Decoder::rotate(Matrix& rows, const models::LayerDescription& layer, int first) const {
    const std::vector<double> frequencies = models::frequencies(layer.rope);
    const auto pairs = static_cast<Eigen::Index>(frequencies.size());
    const auto factor = static_cast<float>(layer.rope.attention_factor);
    for (Eigen::Index row = 0; row < rows.rows(); ++row) {
        for (Eigen::Index pair = 0; pair < pairs; ++pair) {
            const double angle = static_cast<double>(first + row) * frequencies[static_cast<std::size_t>(pair)];
            const float cosine = static_cast<float>(std::cos(angle)) * factor;
            const float sine = static_cast<float>(std::sin(angle)) * factor;
            for (Eigen::Index head = 0; head < rows.cols(); head += layer.shape.key_dim) {
                float& a = rows(row, head + pair);
                float& b = rows(row, head + pair + pairs);
                const float rotated = a * cosine - b * sine;
                b = b * cosine + a * sine;
                a = rotated;
            }
        }
    }
}

Matrix Decoder::normed(const Matrix& x, const RowVector& weight) const {
    Matrix y;
    llama::rms_norm(x, weight, epsilon_, y);
    return y;
}

Matrix Decoder::feed_forward(const Layer& layer, const Matrix& x) const {
    Matrix gate = x * layer.gate.transpose();
    const Matrix up = x * layer.up.transpose();
    if (is_gemma_) { // GELU, by a hyperbolic tangent
        for (float& g : gate.reshaped()) g *= 0.5F * (1.0F + std::tanh(0.7978845608F * (g + 0.044715F * g * g * g)));
        gate.array() *= up.array();
    } else {
        llama::gate(gate, up);
    }
    return gate * layer.down.transpose();
}

} // namespace folder
