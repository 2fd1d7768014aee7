// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "weights.hpp"

#include <Eigen/Core>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace llama {

/// What the attention layers remember: all that a forward pass has to ask of it. One implementation
/// keeps keys and values in caches, another keeps none and computes everything anew.
class AttentionMemory {
public:
    virtual ~AttentionMemory() = default;

    /// Row i belongs to token i of the batch; heads lie side by side. Queries and keys come without
    /// rotary positions, because only the memory knows where a token stands, and may be overwritten.
    /// `out` [tokens, heads * head_dim] receives the values that each token attends to.
    virtual void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) = 0;
};

/// A decoder like Llama: for each layer attention and a feed-forward net, each behind an RMS norm
/// and added to what came in.
class Llama {
public:
    explicit Llama(Weights weights) : weights_{std::move(weights)} {}

    const Config& config() const { return weights_.config; }
    const Weights& weights() const { return weights_; }

    /// Runs a batch of tokens through all layers. The result has a row of logits for each token
    /// that `wanted` names by its place in the batch; it is valid until the next call.
    const Matrix& forward(std::span<const int> tokens, AttentionMemory& memory, std::span<const int> wanted) {
        embed(tokens);
        for (int layer = 0; layer < config().layers(); ++layer) {
            const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
            rms_norm(x_, w.attention_norm, config().rms_norm_eps, normed_);
            switch (w.kind) {
            case LayerKind::sliding_attention:
            case LayerKind::full_attention:
                attention(layer, w.attention, memory);
                break;
            }
            x_ += block_;
            rms_norm(x_, w.feed_forward_norm, config().rms_norm_eps, normed_);
            feed_forward(w.feed_forward);
            x_ += block_;
        }
        return classify(wanted);
    }

private:
    static void multiply(const Matrix& x, const Matrix& weight, Matrix& y) { y.noalias() = x * weight.transpose(); }

    void embed(std::span<const int> tokens) {
        x_.resize(static_cast<Eigen::Index>(tokens.size()), config().hidden_size);
        Eigen::Index row = 0;
        for (const int token : tokens) x_.row(row++) = weights_.embedding.row(token);
    }

    void attention(int layer, const AttentionWeights& w, AttentionMemory& memory) {
        multiply(normed_, w.query, queries_);
        multiply(normed_, w.key, keys_);
        multiply(normed_, w.value, values_);
        memory.attend(layer, queries_, keys_, values_, attended_);
        multiply(attended_, w.output, block_);
    }

    void feed_forward(const FeedForwardWeights& w) {
        multiply(normed_, w.gate, gate_);
        multiply(normed_, w.up, up_);
        gate(gate_, up_);
        multiply(gate_, w.down, block_);
    }

    const Matrix& classify(std::span<const int> wanted) {
        block_.resize(static_cast<Eigen::Index>(wanted.size()), x_.cols());
        Eigen::Index row = 0;
        for (const int token : wanted) block_.row(row++) = x_.row(token);
        rms_norm(block_, weights_.norm, config().rms_norm_eps, normed_);
        multiply(normed_, config().tie_word_embeddings ? weights_.embedding : weights_.classifier, logits_);
        return logits_;
    }

    Weights weights_;
    // Kept from call to call, so that a decode step allocates nothing here.
    Matrix x_;        // [tokens, hidden], the residual stream
    Matrix normed_;   // [tokens, hidden]
    Matrix block_;    // [tokens, hidden], what a block adds
    Matrix queries_;  // [tokens, heads * head_dim]
    Matrix keys_;     // [tokens, key-value heads * head_dim]
    Matrix values_;   // [tokens, key-value heads * head_dim]
    Matrix attended_; // [tokens, heads * head_dim]
    Matrix gate_;     // [tokens, intermediate]
    Matrix up_;       // [tokens, intermediate]
    Matrix logits_;   // [wanted, vocabulary]
};

} // namespace llama
