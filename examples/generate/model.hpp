// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "weights.hpp"

#include <span>
#include <utility>

namespace llama {

/// What the layers remember: all that a forward pass has to ask of it. One implementation keeps keys,
/// values and states, another keeps none and computes everything anew.
class LayerMemory {
public:
    virtual ~LayerMemory() = default;

    /// Row i belongs to token i of the batch; heads lie side by side. Queries and keys come without
    /// rotary positions, because only the memory knows where a token stands, and may be overwritten.
    /// `out` [tokens, heads * head_dim] receives the values that each token attends to.
    virtual void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) = 0;

    /// Row i of `x` [tokens, width] is what token i gives to the recurrence of a layer, and becomes what comes out.
    virtual void recur(int layer, const RecurrenceWeights& w, Matrix& x) = 0;
};

/// A decoder like Llama: for each layer attention, or a recurrence in its place, and a feed-forward
/// net, each behind an RMS norm and added to what came in.
class Llama {
public:
    explicit Llama(Weights weights) : weights_{std::move(weights)} {}

    const Config& config() const { return weights_.config; }
    const Weights& weights() const { return weights_; }

    /// Runs a batch of tokens through all layers. The result has a row of logits for each token
    /// that `wanted` names by its place in the batch; it is valid until the next call.
    const Matrix& forward(std::span<const int> tokens, LayerMemory& memory, std::span<const int> wanted);

private:
    void embed(std::span<const int> tokens);
    void attention(int layer, const AttentionWeights& w, LayerMemory& memory);
    void recurrence(int layer, const RecurrentWeights& w, LayerMemory& memory);
    void feed_forward(const FeedForwardWeights& w);
    const Matrix& classify(std::span<const int> wanted);

    Weights weights_;
    // Kept from call to call, so that a decode step allocates nothing here.
    Matrix x_;        // [tokens, hidden], the residual stream
    Matrix normed_;   // [tokens, hidden]
    Matrix block_;    // [tokens, hidden], what a block adds
    Matrix queries_;  // [tokens, heads * head_dim]
    Matrix keys_;     // [tokens, key-value heads * head_dim]
    Matrix values_;   // [tokens, key-value heads * head_dim]
    Matrix attended_; // [tokens, heads * head_dim]
    Matrix channels_; // [tokens, recurrent width]
    Matrix gate_;     // [tokens, intermediate], or [tokens, recurrent width]
    Matrix up_;       // [tokens, intermediate]
    Matrix logits_;   // [wanted, vocabulary]
};

} // namespace llama
