// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "weights.hpp"
#include <cellar/base/view.hpp>

#include <span>
#include <utility>

namespace rwkv {

/// What a layer remembers of some sequences, whatever their length. It begins as zeros.
struct LayerState {
    cellar::StridedView<float, 2> channel_token; ///< [sequences, hidden]: the last token, as the channel mix saw it
    cellar::StridedView<float, 2> time_token;    ///< [sequences, hidden]: the last token, as the time mix saw it
    cellar::StridedView<float, 4> key_value;     ///< [sequences, heads, head_dim of values, head_dim of keys]
};

/// RWKV-7 (arXiv:2503.14456): layers of a time mix, which remembers a matrix for each head, and a channel mix.
///
/// It is run in three steps, `embed`, `layer` for every layer and `classify`, because the states that a layer takes and
/// changes are somebody else's. Activations have a row for each token; the tokens of one sequence lie together, in
/// order, and all sequences have equally many.
class Rwkv {
public:
    explicit Rwkv(Weights weights) : weights_{std::move(weights)} {}

    const Config& config() const { return weights_.config; }

    Matrix embed(std::span<const int> tokens) const;

    /// `x` [tokens, hidden] becomes what the layer makes of it, and `state` what is to be remembered after it.
    /// `first_values` [tokens, hidden] are written by layer 0 and read by the others.
    void layer(int layer, const LayerState& state, Matrix& x, Matrix& first_values) const;

    /// A row of logits for each row of `x`.
    Matrix classify(const Matrix& x) const;

private:
    Weights weights_;
};

} // namespace rwkv
