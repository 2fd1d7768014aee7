// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "model.hpp"

#include "arithmetic.hpp"

#include <Eigen/Core>

#include <cstddef>

namespace llama {

const Matrix& Llama::forward(std::span<const int> tokens, LayerMemory& memory, std::span<const int> wanted) {
    embed(tokens);
    run_layers(memory);
    return classify(wanted);
}

void Llama::run_layers(LayerMemory& memory) {
    for (int layer = 0; layer < config().layers(); ++layer) {
        const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
        rms_norm(x_, w.input_norm, config().rms_norm_eps, normed_);
        switch (w.kind) {
        case LayerKind::sliding_attention:
        case LayerKind::full_attention:
            attention(layer, w.attention, memory);
            break;
        case LayerKind::recurrent:
            recurrence(layer, w.recurrent, memory);
            break;
        }
        x_ += block_;
        rms_norm(x_, w.feed_forward_norm, config().rms_norm_eps, normed_);
        feed_forward(w.feed_forward);
        x_ += block_;
    }
}

void Llama::embed(std::span<const int> tokens) {
    x_.resize(static_cast<Eigen::Index>(tokens.size()), config().hidden_size);
    Eigen::Index row = 0;
    for (const int token : tokens) x_.row(row++) = weights_.embedding.row(token);
}

void Llama::attention(int layer, const AttentionWeights& w, LayerMemory& memory) {
    multiply(normed_, w.query, queries_);
    multiply(normed_, w.key, keys_);
    multiply(normed_, w.value, values_);
    memory.attend(layer, queries_, keys_, values_, attended_);
    multiply(attended_, w.output, block_);
    if (sum_) sum_(block_);
}

void Llama::recurrence(int layer, const RecurrentWeights& w, LayerMemory& memory) {
    multiply(normed_, w.input, channels_);
    multiply(normed_, w.gate, gate_);
    memory.recur(layer, w.recurrence, channels_);
    gate(gate_, channels_);
    multiply(gate_, w.output, block_);
}

void Llama::feed_forward(const FeedForwardWeights& w) {
    multiply(normed_, w.gate, gate_);
    multiply(normed_, w.up, up_);
    gate(gate_, up_);
    multiply(gate_, w.down, block_);
    if (sum_) sum_(block_);
}

const Matrix& Llama::classify(std::span<const int> wanted) {
    block_.resize(static_cast<Eigen::Index>(wanted.size()), x_.cols());
    Eigen::Index row = 0;
    for (const int token : wanted) block_.row(row++) = x_.row(token);
    rms_norm(block_, weights_.norm, config().rms_norm_eps, normed_);
    multiply(normed_, config().tie_word_embeddings ? weights_.embedding : weights_.classifier, logits_);
    return logits_;
}

void Llama::multiply(const Matrix& x, const Matrix& weight, Matrix& y) const {
    if (products_ == Products::of_all_rows) {
        y.noalias() = x * weight.transpose();
        return;
    }
    y.resize(x.rows(), weight.rows());
    for (Eigen::Index row = 0; row < x.rows(); ++row) y.row(row).noalias() = x.row(row) * weight.transpose();
}

} // namespace llama
