// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "weights.hpp"
#include <cellar/base/view.hpp>

#include <span>
#include <utility>

namespace rwkv {

/// The state of a layer for some sequences. Zero at the start.
struct LayerState {
    cellar::StridedView<float, 2> channel_token; ///< [sequences, hidden]: the last input of the channel mix
    cellar::StridedView<float, 2> time_token;    ///< [sequences, hidden]: the last input of the time mix
    cellar::StridedView<float, 4> key_value;     ///< [sequences, heads, head_dim of values, head_dim of keys]
};

/// RWKV-7 (arXiv:2503.14456): layers of a time mix, whose state is a matrix per head, and a channel mix.
///
/// The caller owns the states, so it calls `embed`, then `layer` for every layer, then `classify`. Activations have one
/// row per token. The tokens of a sequence are adjacent and in order. All sequences have the same number of tokens.
class Rwkv {
public:
    explicit Rwkv(Weights weights) : weights_{std::move(weights)} {}

    const Config& config() const { return weights_.config; }

    Matrix embed(std::span<const int> tokens) const;

    /// Replaces `x` [tokens, hidden] by the output of the layer, and `state` by the state after the last token. Layer 0
    /// writes `first_values` [tokens, hidden], the others read them.
    void layer(int layer, const LayerState& state, Matrix& x, Matrix& first_values) const;

    /// Returns a row of logits for each row of `x`.
    Matrix classify(const Matrix& x) const;

private:
    Weights weights_;
};

} // namespace rwkv
