// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "decoder.hpp"

#include "experts.hpp"
#include "routed_experts.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/models/config.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <generate/arithmetic.hpp>
#include <stdexcept>
#include <string_view>
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
    float positive(std::string_view key, float otherwise) const {
        const auto found = json_.find(std::string{key});
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

/// [tokens, heads, dim]
auto heads_of(const Matrix& rows, int dim) {
    return cellar::contiguous_view(rows.data(), rows.rows(), rows.cols() / dim, dim);
}

} // namespace

Decoder::Decoder(const ModelFolder& folder, int context)
    : model_{value_of(models::from_config(folder.config()))}, architecture_{architecture_of(model_.architecture)} {
    const Numbers numbers{folder};
    hidden_ = numbers.integer("hidden_size");
    if (architecture_.is_gemma) embedding_factor_ = std::sqrt(static_cast<float>(hidden_));
    if (model_.architecture == "granitemoehybrid") {
        embedding_factor_ = numbers.positive("embedding_multiplier", 1);
        residual_factor_ = numbers.positive("residual_multiplier", 1);
        logits_divisor_ = numbers.positive("logits_scaling", 1);
    }
    logits_cap_ = numbers.positive("final_logit_softcapping", 0);
    vocabulary_ = numbers.vocabulary(model_.architecture == "gemma3_text" ? 262208 : 0);
    epsilon_ = numbers.positive(architecture_.epsilon, architecture_.usual_epsilon);
    read_embedding(folder);
    if (folder.has("lm_head.weight")) classifier_ = folder.matrix("lm_head.weight", vocabulary_, hidden_);
    norm_ = norm_weight(folder, prefix_ + std::string{architecture_.norm}, hidden_);
    for (int i = 0; i < static_cast<int>(model_.layers.size()); ++i) layers_.push_back(read_layer(folder, i, context));
}

/// Its name tells what stands before the names of all tensors of the decoder.
void Decoder::read_embedding(const ModelFolder& folder) {
    const std::string usual{architecture_.embedding};
    std::string found = usual;
    for (const std::string prefix : {"model.", "language_model.model.", "model.language_model.", "backbone."}) {
        // The second one is of a Nemotron-H that transformers wrote; published ones have the usual name.
        for (const std::string& name : {usual, std::string{"embedding.weight"}}) {
            if (!folder.has(prefix + name)) continue;
            prefix_ = prefix;
            found = prefix + name;
        }
    }
    embedding_ = folder.matrix(found, vocabulary_, hidden_);
}

RowVector Decoder::norm_weight(const ModelFolder& folder, const std::string& name, int size) const {
    RowVector weight = folder.vector(name, size);
    if (architecture_.norms_add_one) weight.array() += 1.0F;
    return weight;
}

Decoder::Layer Decoder::read_layer(const ModelFolder& folder, int index, int context) const {
    const std::string at = prefix_ + "layers." + std::to_string(index) + ".";
    const models::LayerDescription& layer = model_.layers[static_cast<std::size_t>(index)];
    Layer read;
    const bool mixes = layer.kind != models::LayerKind::nothing;
    if (mixes) {
        read.first_norm = norm_weight(folder, at + std::string{architecture_.first_norm}, hidden_);
        if (layer.kind == models::LayerKind::recurrent) {
            read.recurrence = read_recurrence(folder, at + std::string{architecture_.recurrence}, layer);
        } else {
            read.frequencies = models::frequencies(layer.rope, context);
            read_attention(folder, at + std::string{architecture_.attention}, index, read);
        }
    }
    if (!mixes || !architecture_.has_one_part) {
        read.second_norm = norm_weight(folder, at + std::string{architecture_.second_norm}, hidden_);
        read.feed_forward = read_feed_forward(folder, at);
    }
    if (architecture_.is_gemma) {
        read.first_norm_after = norm_weight(folder, at + "post_attention_layernorm.weight", hidden_);
        read.second_norm_after = norm_weight(folder, at + "post_feedforward_layernorm.weight", hidden_);
    }
    return read;
}

std::unique_ptr<const Recurrence> Decoder::read_recurrence(const ModelFolder& folder, const std::string& at,
                                                           const models::LayerDescription& layer) const {
    if (model_.architecture == "lfm2") return short_convolution(folder, at, layer);
    if (model_.architecture == "qwen3_next") return delta_net(folder, at, layer, epsilon_);
    if (model_.architecture == "jamba") return mamba(folder, at, layer, epsilon_);
    return mamba2(folder, at, layer, epsilon_);
}

void Decoder::read_attention(const ModelFolder& folder, const std::string& at, int index, Layer& read) const {
    const models::LayerDescription& layer = model_.layers[static_cast<std::size_t>(index)];
    const int dim = layer.shape.key_dim;
    const std::string output = at + std::string{architecture_.output};
    if (layer.shape.value_dim == 0) {
        read.latent = {folder, at, layer, epsilon_};
        read.output = folder.matrix(output + ".weight", hidden_, read.latent.width());
        return;
    }
    read_projections(folder, at, layer, read);
    read.output = folder.matrix(output + ".weight", hidden_, layer.heads * dim);
    if (folder.has(output + ".bias")) read.output_bias = folder.vector(output + ".bias", hidden_);
    if (layer.learned_sinks) read.sinks = folder.vector(at + "sinks", layer.heads);
    const std::string norm{architecture_.head_norm};
    if (folder.has(at + "q_" + norm)) {
        read.query_norm = norm_weight(folder, at + "q_" + norm, dim);
        read.key_norm = norm_weight(folder, at + "k_" + norm, dim);
    }
}

/// Of queries, keys and values, which some files have in one tensor.
void Decoder::read_projections(const ModelFolder& folder, const std::string& at, const models::LayerDescription& layer,
                               Layer& read) const {
    const int dim = layer.shape.key_dim;
    const int queries = layer.heads * dim;
    const int keys = layer.shape.kv_heads * dim;
    if (model_.architecture == "phi3") {
        const Matrix all = folder.matrix(at + "qkv_proj.weight", queries + 2 * std::int64_t{keys}, hidden_);
        read.query = all.topRows(queries);
        read.key = all.middleRows(queries, keys);
        read.value = all.bottomRows(keys);
        return;
    }
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
    if (folder.has(at + "q_proj.bias")) {
        read.query_bias = folder.vector(at + "q_proj.bias", queries);
        read.key_bias = folder.vector(at + "k_proj.bias", keys);
        read.value_bias = folder.vector(at + "v_proj.bias", keys);
    }
}

/// Of the layer's tensors, whose names begin with `at`. Null: the layer has none.
std::unique_ptr<const FeedForward> Decoder::read_experts(const ModelFolder& folder, const std::string& at) const {
    const auto routed = [](RoutedExperts read) { return std::make_unique<RoutedExperts>(std::move(read)); };
    if (model_.architecture == "gpt_oss")
        return std::make_unique<Experts>(folder, at + "mlp.", folder.integer("num_local_experts"),
                                         folder.integer("num_experts_per_tok"), hidden_,
                                         folder.integer("intermediate_size"));
    if (model_.architecture == "granitemoehybrid") return routed(RoutedExperts::of_granite(folder, at));
    if (folder.has(at + "feed_forward.router.weight")) return routed(RoutedExperts::of_jamba(folder, at));
    if (!folder.has(at + "mlp.gate.weight")) return nullptr;
    if (model_.architecture == "qwen3_next") return routed(RoutedExperts::of_qwen(folder, at));
    return routed(RoutedExperts::of_deepseek(folder, at + "mlp."));
}

std::unique_ptr<const FeedForward> Decoder::read_feed_forward(const ModelFolder& folder, const std::string& at) const {
    if (auto experts = read_experts(folder, at)) return experts;
    const std::string own = at + std::string{architecture_.feed_forward};
    const int inner = Numbers{folder}.intermediate();
    const auto input = [&](std::string_view name) { return folder.matrix(own + std::string{name}, inner, hidden_); };
    const auto down = [&] { return folder.matrix(own + std::string{architecture_.down}, hidden_, inner); };
    if (model_.architecture == "phi3") {
        const Matrix both = folder.matrix(own + "gate_up_proj.weight", 2 * std::int64_t{inner}, hidden_);
        return std::make_unique<GatedNetwork>(both, down());
    }
    if (architecture_.has_one_part) {
        Matrix up = input(architecture_.up);
        return std::make_unique<SquaredNetwork>(std::move(up), down());
    }
    Matrix gate = input(architecture_.gate);
    Matrix up = input(architecture_.up);
    return std::make_unique<GatedNetwork>(std::move(gate), std::move(up), down(),
                                          architecture_.is_gemma ? Activation::gelu : Activation::silu);
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
        if (layer.first_norm.size() != 0) {
            const Matrix mixed = mix(*pass, i, normed(x, layer.first_norm), first.value);
            x += residual_factor_ * normed(mixed, layer.first_norm_after);
        }
        if (layer.feed_forward != nullptr) {
            const Matrix fed = layer.feed_forward->forward(normed(x, layer.second_norm));
            x += residual_factor_ * normed(fed, layer.second_norm_after);
        }
    }
    pass->commit();
    Matrix logits = normed(x, norm_) * (classifier_.size() != 0 ? classifier_ : embedding_).transpose();
    logits /= logits_divisor_;
    if (logits_cap_ > 0) logits.array() = logits_cap_ * (logits.array() / logits_cap_).tanh();
    return logits;
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
            x, [&](Matrix& rows) { rotate(rows, index, first); },
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
                using Pass = std::remove_cvref_t<decltype(own)>;
                if constexpr (std::is_same_v<Pass, cellar::PassOf<Recurrences>>)
                    remembered.state = &own.template get<Matrices>(layer_of_member, micro_batch)(0, 0, 0, 0);
                if constexpr (std::is_same_v<Pass, cellar::PassOf<ByChannel>>)
                    remembered.state = &own.template get<Channels>(layer_of_member, micro_batch)(0, 0, 0);
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
    rotate(queries, index, first);
    rotate(keys, index, first);
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
void Decoder::rotate(Matrix& rows, int index, int first) const {
    const models::LayerDescription& layer = model_.layers[static_cast<std::size_t>(index)];
    const std::vector<double>& frequencies = layers_[static_cast<std::size_t>(index)].frequencies;
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

/// Without weights: as it is.
Matrix Decoder::normed(const Matrix& x, const RowVector& weight) const {
    if (weight.size() == 0) return x;
    Matrix y;
    llama::rms_norm(x, weight, epsilon_, y);
    return y;
}

} // namespace folder
