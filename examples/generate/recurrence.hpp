// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "weights.hpp"

#include <Eigen/Core>

namespace llama {

/// What a recurrent layer remembers of one sequence. It begins as zeros.
struct RecurrentLayerState {
    Eigen::Map<Matrix> inputs; ///< [taps - 1, width]: the newest ones, oldest first
    Eigen::Map<RowVector> h;   ///< [width]
};

/// The real-gated linear recurrent unit (Griffin, arXiv:2402.19427) behind a causal convolution, for tokens of one
/// sequence, a row each: x becomes h, where with c = convolution(x)
///
///     a = exp(decay * decay_gate(c))
///     h = a * (h before) + sqrt(1 - a^2) * input_gate(c) * c
///
/// `state` becomes what it is after the last token.
void recur(const RecurrenceWeights& w, RecurrentLayerState state, Eigen::Ref<Matrix> x);

} // namespace llama
