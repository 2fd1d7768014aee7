// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "decoder.hpp"

#include "experts.hpp"
#include "grouped_experts.hpp"
#include "routed_experts.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/models/config.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <generate/arithmetic.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace folder {

namespace models = cellar::models;

namespace {

/// What of a config is not about memory.
class Numbers {
public:
    explicit Numbers(const ModelFolder& folder)
        : folder_{folder},
          json_(folder.config().contains("text_config") ? folder.config().at("text_config") : folder.config()) {}

    int integer(const char* key) const { return folder_.integer(key); }
    float positive(const char* key, float otherwise) const {
        const auto found = json_.find(key);
        return found != json_.end() && found->is_number() && *found > 0 ? found->get<float>() : otherwise;
    }
    /// LFM2 says how the number of its file is rounded.
    int intermediate() const {
        const int given = integer("intermediate_size");
        if (json_.value("model_type", "") != "lfm2" || !json_.value("block_auto_adjust_ff_dim", true)) return given;
        const int multiple = std::max(json_.value("block_multiple_of", 256), 1);
        const int scaled =
            static_cast<int>(positive("block_ffn_dim_multiplier", 1) * static_cast<float>(2 * given / 3));
        return (scaled + multiple - 1) / multiple * multiple;
    }
    int vocabulary(int otherwise) const { return json_.contains("vocab_size") ? integer("vocab_size") : otherwise; }

private:
    const ModelFolder& folder_;
    nlohmann::json json_;
};

template <class T>
T value_of(models::ModelResult<T> result) {
    if (!result) throw std::runtime_error{result.error().message};
    return std::move(result).value();
}

void check_known(const std::string& architecture) {
    const char* const known[] = {
        "llama",       "mistral",          "qwen2",     "qwen3", "gemma3_text", "gpt_oss", "lfm2",
        "deepseek_v3", "granitemoehybrid", "qwen3_next"};
    std::string names;
    for (const char* const name : known) {
        if (architecture == name) return;
        names += (names.empty() ? "" : ", ") + std::string{name};
    }
    throw std::runtime_error{"the model is a " + llama::in_quotes(architecture) + ", expected one of " + names};
}

/// [tokens, heads, dim]
auto heads_of(const Matrix& rows, int dim) {
    return cellar::contiguous_view(rows.data(), rows.rows(), rows.cols() / dim, dim);
}

} // namespace

Decoder::Decoder(const ModelFolder& folder) : model_{value_of(models::from_config(folder.config()))} {
    check_known(model_.architecture);
    const Numbers numbers{folder};
    is_gemma_ = model_.architecture == "gemma3_text";
    hidden_ = numbers.integer("hidden_size");
    is_lfm2_ = model_.architecture == "lfm2";
    intermediate_ = numbers.intermediate();
    norms_add_one_ = is_gemma_ || model_.architecture == "qwen3_next";
    if (is_gemma_) embedding_factor_ = std::sqrt(static_cast<float>(hidden_));
    if (model_.architecture == "granitemoehybrid") {
        embedding_factor_ = numbers.positive("embedding_multiplier", 1);
        residual_factor_ = numbers.positive("residual_multiplier", 1);
        logits_divisor_ = numbers.positive("logits_scaling", 1);
    }
    vocabulary_ = numbers.vocabulary(is_gemma_ ? 262208 : 0);
    epsilon_ = is_lfm2_ ? numbers.positive("norm_eps", 1e-5F) : numbers.positive("rms_norm_eps", 1e-6F);
    for (const char* const prefix : {"model.", "language_model.model.", "model.language_model."})
        if (folder.has(prefix + std::string{"embed_tokens.weight"})) prefix_ = prefix;
    embedding_ = folder.matrix(prefix_ + "embed_tokens.weight", vocabulary_, hidden_);
    if (folder.has("lm_head.weight")) classifier_ = folder.matrix("lm_head.weight", vocabulary_, hidden_);
    norm_ = norm_weight(folder, prefix_ + (is_lfm2_ ? "embedding_norm.weight" : "norm.weight"), hidden_);
    for (int i = 0; i < static_cast<int>(model_.layers.size()); ++i) layers_.push_back(read_layer(folder, i));
}

/// Some files have what is added to 1.
RowVector Decoder::norm_weight(const ModelFolder& folder, const std::string& name, int size) const {
    RowVector weight = folder.vector(name, size);
    if (norms_add_one_) weight.array() += 1.0F;
    return weight;
}

Decoder::Layer Decoder::read_layer(const ModelFolder& folder, int index) const {
    const std::string at = prefix_ + "layers." + std::to_string(index) + ".";
    const models::LayerDescription& layer = model_.layers[static_cast<std::size_t>(index)];
    Layer read;
    if (layer.kind == models::LayerKind::recurrent) {
        read.recurrence = read_recurrence(folder, at, layer);
    } else if (layer.shape.value_dim == 0) {
        read.latent = {folder, at + "self_attn.", layer, epsilon_};
        read.output = folder.matrix(at + "self_attn.o_proj.weight", hidden_, read.latent.width());
    } else {
        read_attention(folder, at + "self_attn.", index, read);
    }
    read_feed_forward(folder, at, read);
    read.input_norm = norm_weight(folder, at + (is_lfm2_ ? "operator_norm.weight" : "input_layernorm.weight"), hidden_);
    if (is_gemma_) {
        read.attention_norm = norm_weight(folder, at + "post_attention_layernorm.weight", hidden_);
        read.output_norm = norm_weight(folder, at + "post_feedforward_layernorm.weight", hidden_);
    }
    return read;
}

std::unique_ptr<const Recurrence> Decoder::read_recurrence(const ModelFolder& folder, const std::string& at,
                                                           const models::LayerDescription& layer) const {
    if (is_lfm2_) return short_convolution(folder, at + "conv.", layer);
    if (model_.architecture == "qwen3_next") return delta_net(folder, at + "linear_attn.", layer, epsilon_);
    return mamba2(folder, at + "mamba.", layer, epsilon_);
}

void Decoder::read_attention(const ModelFolder& folder, const std::string& at, int index, Layer& read) const {
    const models::LayerDescription& layer = model_.layers[static_cast<std::size_t>(index)];
    const int dim = layer.shape.key_dim;
    const int queries = layer.heads * dim;
    const int keys = layer.shape.kv_heads * dim;
    const std::string output = at + (is_lfm2_ ? "out_proj" : "o_proj");
    if (model_.architecture == "qwen3_next") {
        read.query.resize(queries, hidden_);
        read.attention_gate.resize(queries, hidden_);
        const Matrix both = folder.matrix(at + "q_proj.weight", 2 * std::int64_t{queries}, hidden_);
        for (int head = 0; head < layer.heads; ++head) {
            read.query.middleRows(head * dim, dim) = both.middleRows(2 * head * dim, dim);
            read.attention_gate.middleRows(head * dim, dim) = both.middleRows((2 * head + 1) * dim, dim);
        }
    } else {
        read.query = folder.matrix(at + "q_proj.weight", queries, hidden_);
    }
    read.key = folder.matrix(at + "k_proj.weight", keys, hidden_);
    read.value = folder.matrix(at + "v_proj.weight", keys, hidden_);
    read.output = folder.matrix(output + ".weight", hidden_, queries);
    if (folder.has(at + "q_proj.bias")) {
        read.query_bias = folder.vector(at + "q_proj.bias", queries);
        read.key_bias = folder.vector(at + "k_proj.bias", keys);
        read.value_bias = folder.vector(at + "v_proj.bias", keys);
    }
    if (folder.has(output + ".bias")) read.output_bias = folder.vector(output + ".bias", hidden_);
    if (layer.learned_sinks) read.sinks = folder.vector(at + "sinks", layer.heads);
    const std::string norm = is_lfm2_ ? "layernorm.weight" : "norm.weight";
    if (folder.has(at + "q_" + norm)) {
        read.query_norm = norm_weight(folder, at + "q_" + norm, dim);
        read.key_norm = norm_weight(folder, at + "k_" + norm, dim);
    }
}

/// Null: the layer has none.
std::unique_ptr<const FeedForward> Decoder::read_experts(const ModelFolder& folder, const std::string& at) const {
    if (model_.architecture == "gpt_oss")
        return std::make_unique<Experts>(folder, at + "mlp.", folder.integer("num_local_experts"),
                                         folder.integer("num_experts_per_tok"), hidden_, intermediate_);
    if (model_.architecture == "granitemoehybrid")
        return std::make_unique<RoutedExperts>(RoutedExperts::of_granite(folder, at));
    if (!folder.has(at + "mlp.gate.weight")) return nullptr;
    if (model_.architecture == "qwen3_next") return std::make_unique<RoutedExperts>(RoutedExperts::of_qwen(folder, at));
    return std::make_unique<GroupedExperts>(folder, at + "mlp.");
}

void Decoder::read_feed_forward(const ModelFolder& folder, const std::string& at, Layer& read) const {
    const char* const before = is_gemma_  ? "pre_feedforward_layernorm.weight"
                               : is_lfm2_ ? "ffn_norm.weight"
                                          : "post_attention_layernorm.weight";
    read.feed_forward_norm = norm_weight(folder, at + before, hidden_);
    read.experts = read_experts(folder, at);
    if (read.experts != nullptr) return;
    read.gate =
        folder.matrix(at + (is_lfm2_ ? "feed_forward.w1.weight" : "mlp.gate_proj.weight"), intermediate_, hidden_);
    read.up = folder.matrix(at + (is_lfm2_ ? "feed_forward.w3.weight" : "mlp.up_proj.weight"), intermediate_, hidden_);
    read.down =
        folder.matrix(at + (is_lfm2_ ? "feed_forward.w2.weight" : "mlp.down_proj.weight"), hidden_, intermediate_);
}

cellar::MemoryBytes Decoder::memory_bytes(const models::MemoryLimits& limits) const {
    return value_of(models::bytes<Memory>(model_, limits));
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
    x *= embedding_factor_;
    for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
        const Layer& layer = layers_[static_cast<std::size_t>(i)];
        const Matrix attended = mix(*pass, i, normed(x, layer.input_norm), first.value);
        x += residual_factor_ * (is_gemma_ ? normed(attended, layer.attention_norm) : attended);
        const Matrix fed = feed_forward(layer, normed(x, layer.feed_forward_norm));
        x += residual_factor_ * (is_gemma_ ? normed(fed, layer.output_norm) : fed);
    }
    pass->commit();
    return Matrix{normed(x, norm_) * (classifier_.size() != 0 ? classifier_ : embedding_).transpose()
                  / logits_divisor_};
}

/// Attention, or what stands in its place.
Matrix Decoder::mix(cellar::PassOf<Memory>& pass, int index, const Matrix& x, int first) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    if (layer.recurrence != nullptr) return recur(pass, index, x);
    Matrix mixed;
    if (layer.latent.empty()) {
        mixed = attend(pass, index, x, first);
    } else {
        mixed = layer.latent.forward(
            x, [&](Matrix& rows) { rotate(rows, model_.layers[static_cast<std::size_t>(index)], first); },
            [&](const Matrix& queries, const Matrix& keys) { return attend(pass, index, queries, keys, Matrix{}); });
    }
    Matrix out = mixed * layer.output.transpose();
    if (layer.output_bias.size() != 0) out.rowwise() += layer.output_bias;
    return out;
}

Matrix Decoder::recur(cellar::PassOf<Memory>& pass, int index, const Matrix& x) const {
    const Recurrence& layer = *layers_[static_cast<std::size_t>(index)].recurrence;
    Matrix out(x.rows(), hidden_);
    pass.visit(index, [&](auto& own, int layer_of_member) {
        if constexpr (requires { own.micro_batches(); }) {
            for (const cellar::MicroBatch& micro_batch : own.micro_batches()) {
                const auto tokens = micro_batch.tokens(0);
                const auto inputs = own.template get<RecentInputs>(layer_of_member, micro_batch);
                Remembered remembered{.inputs = &inputs(0, 0, 0)};
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(own)>, cellar::PassOf<Recurrences>>)
                    remembered.state = &own.template get<Matrices>(layer_of_member, micro_batch)(0, 0, 0, 0);
                const auto columns = Eigen::seqN(Eigen::Index{0}, x.cols());
                out(tokens, columns) = layer.forward(x(tokens, columns), remembered);
                own.put(layer_of_member, micro_batch);
            }
        }
    });
    return out;
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
    Matrix out = attend(pass, index, queries, keys, values);
    if (layer.attention_gate.size() != 0) out.array() /= 1 + (-(x * layer.attention_gate.transpose()).array()).exp();
    return out;
}

/// Stores keys and values, and attends for the queries. Without values: they are the first elements of the keys.
Matrix Decoder::attend(cellar::PassOf<Memory>& pass, int index, const Matrix& queries, const Matrix& keys,
                       const Matrix& values) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const models::LayerDescription& description = model_.layers[static_cast<std::size_t>(index)];
    const int dim = description.shape.key_dim;
    const int value_dim = values.size() == 0 ? description.rope.begin : dim;
    Matrix out(queries.rows(), description.heads * value_dim);
    const cellar::AttentionOptions options{.scale = static_cast<float>(description.scale),
                                           .soft_cap = static_cast<float>(description.soft_cap),
                                           .sinks = {layer.sinks.data(), static_cast<std::size_t>(layer.sinks.size())}};
    pass.visit(index, [&](auto& own, int layer_of_member) {
        if constexpr (requires { own.history(); }) {
            own.put(layer_of_member, heads_of(keys, dim), heads_of(values, value_dim));
            cellar::attend(own, layer_of_member, heads_of(queries, dim),
                           cellar::contiguous_view(out.data(), out.rows(), description.heads, value_dim), options);
        }
    });
    return out;
}

/// Pair i is the elements i and i + pairs of those that are rotated, or 2 i and 2 i + 1.
void Decoder::rotate(Matrix& rows, const models::LayerDescription& layer, int first) const {
    const std::vector<double> frequencies = models::frequencies(layer.rope);
    const auto pairs = static_cast<Eigen::Index>(frequencies.size());
    const bool are_neighbours = layer.rope.pairing == models::Pairing::interleaved;
    const auto factor = static_cast<float>(layer.rope.attention_factor);
    for (Eigen::Index row = 0; row < rows.rows(); ++row) {
        for (Eigen::Index pair = 0; pair < pairs; ++pair) {
            const double angle = static_cast<double>(first + row) * frequencies[static_cast<std::size_t>(pair)];
            const float cosine = static_cast<float>(std::cos(angle)) * factor;
            const float sine = static_cast<float>(std::sin(angle)) * factor;
            for (Eigen::Index head = 0; head < rows.cols(); head += layer.shape.key_dim) {
                const Eigen::Index begin = head + layer.rope.begin;
                float& a = rows(row, begin + (are_neighbours ? 2 * pair : pair));
                float& b = rows(row, begin + (are_neighbours ? 2 * pair + 1 : pair + pairs));
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
    if (layer.experts != nullptr) return layer.experts->forward(x);
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
