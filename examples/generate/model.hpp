// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "memory.hpp"
#include "weights.hpp"

#include <functional>
#include <span>
#include <utility>

namespace llama {

/// How a batch is multiplied with a matrix of weights.
enum class Products {
    of_all_rows, ///< the fastest; how a token's result is rounded depends on the number of tokens
    row_by_row,  ///< a token's result does not depend on the rest of the batch, not in one bit
};

/// A decoder like Llama. A layer is attention or a recurrence, then a feed-forward network. Both follow an RMS norm and
/// add their output to their input.
class Llama {
public:
    explicit Llama(Weights weights, Products products = Products::of_all_rows)
        : weights_{std::move(weights)}, products_{products} {}

    const Config& config() const { return weights_.config; }
    const Weights& weights() const { return weights_; }

    /// Runs a batch of tokens through all layers. Returns a row of logits for each token in `wanted`, which has indices
    /// into the batch. The result is valid until the next call.
    const Matrix& forward(std::span<const int> tokens, LayerMemory& memory, std::span<const int> wanted);

    /// The three steps of `forward`, for processes that have some of the layers each.
    void embed(std::span<const int> tokens);
    void run_layers(LayerMemory& memory);
    const Matrix& classify(std::span<const int> wanted);

    /// What goes from layer to layer: [tokens, hidden].
    Matrix& stream() { return x_; }

    /// For processes that have some heads and some channels each: adds up the outputs of a block, in place.
    void set_sum(std::function<void(Matrix&)> sum) { sum_ = std::move(sum); }

private:
    void attention(int layer, const AttentionWeights& w, LayerMemory& memory);
    void recurrence(int layer, const RecurrentWeights& w, LayerMemory& memory);
    void feed_forward(const FeedForwardWeights& w);
    void multiply(const Matrix& x, const Matrix& weight, Matrix& y) const;

    Weights weights_;
    Products products_;
    std::function<void(Matrix&)> sum_;
    // Kept between calls, so that a decode step allocates nothing here.
    Matrix x_;        // [tokens, hidden], the residual stream
    Matrix normed_;   // [tokens, hidden]
    Matrix block_;    // [tokens, hidden], the output of a block
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
