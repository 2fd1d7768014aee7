// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "weights.hpp"

#include <Eigen/Core>

namespace llama {

/// The state of a recurrent layer for one sequence. Zero at the start.
struct RecurrentLayerState {
    Eigen::Map<Matrix> inputs; ///< [taps - 1, width]: the newest inputs, oldest first
    Eigen::Map<RowVector> h;   ///< [width]
};

/// The real-gated linear recurrent unit (Griffin, arXiv:2402.19427) after a causal convolution. The rows of `x` are
/// tokens of one sequence. Replaces x by h, with
///
///     c = convolution(x)
///     a = exp(decay * decay_gate(c))
///     h = a * (previous h) + sqrt(1 - a^2) * input_gate(c) * c
///
/// and `state` by the state after the last token.
void recur(const RecurrenceWeights& w, RecurrentLayerState state, Eigen::Ref<Matrix> x);

} // namespace llama
