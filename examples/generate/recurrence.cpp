// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrence.hpp"

namespace llama {

namespace {

/// `inputs` has the inputs before `x`. Replaces them by the newest.
Matrix convolve(const RecurrenceWeights& w, Eigen::Map<Matrix> inputs, const Eigen::Ref<Matrix>& x) {
    Matrix all(inputs.rows() + x.rows(), x.cols());
    all << inputs, x;
    inputs = all.bottomRows(inputs.rows());
    Matrix y = w.taps_bias.replicate(x.rows(), 1);
    for (Eigen::Index tap = 0; tap < w.taps.cols(); ++tap) {
        y.array() += all.middleRows(tap, x.rows()).array().rowwise() * w.taps.col(tap).transpose().array();
    }
    return y;
}

Matrix logistic(const BlockGate& gate, const Matrix& x) {
    Matrix y(x.rows(), x.cols());
    const Eigen::Index size = gate.weight.cols();
    for (Eigen::Index first = 0; first < x.cols(); first += size) {
        y.middleCols(first, size).noalias() =
            x.middleCols(first, size) * gate.weight.middleRows(first, size).transpose();
    }
    return 1.0F / (1.0F + (-(y.rowwise() + gate.bias).array()).exp());
}

} // namespace

void recur(const RecurrenceWeights& w, RecurrentLayerState state, Eigen::Ref<Matrix> x) {
    const Matrix c = convolve(w, state.inputs, x);
    const Matrix log_a = logistic(w.decay_gate, c).array().rowwise() * w.decay.array();
    const Matrix gated = logistic(w.input_gate, c).cwiseProduct(c);
    for (Eigen::Index token = 0; token < x.rows(); ++token) {
        const auto log = log_a.row(token).array();
        state.h.array() = log.exp() * state.h.array() + (-(2.0F * log).expm1()).sqrt() * gated.row(token).array();
        x.row(token) = state.h;
    }
}

} // namespace llama
