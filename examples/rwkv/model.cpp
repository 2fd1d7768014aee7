// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "model.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rwkv {

namespace {

constexpr float epsilon = 1e-5F;
constexpr float head_epsilon = 64e-5F;

Matrix multiply(const Matrix& x, const Matrix& weight) {
    return x * weight.transpose();
}

Matrix logistic(const Matrix& x) {
    return 1.0F / (1.0F + (-x.array()).exp());
}

/// (x - mean) / deviation in groups of `size` elements of a row, then weight and bias.
Matrix normalise(const Matrix& x, const Norm& norm, float eps, Eigen::Index size) {
    Matrix y = x;
    for (Eigen::Index row = 0; row < y.rows(); ++row) {
        for (Eigen::Index first = 0; first < y.cols(); first += size) {
            auto group = y.row(row).segment(first, size).array();
            group -= group.mean();
            group /= std::sqrt(group.square().mean() + eps);
        }
        y.row(row) = y.row(row).cwiseProduct(norm.weight) + norm.bias;
    }
    return y;
}

Matrix normalise(const Matrix& x, const Norm& norm) {
    return normalise(x, norm, epsilon, x.cols());
}

/// For each row the previous row of its sequence, which for the first row is in `last`. Replaces `last` by the last
/// row.
Matrix previous_rows(const Matrix& x, const cellar::StridedView<float, 2>& last) {
    Matrix result(x.rows(), x.cols());
    const Eigen::Index sequences = last.extent(0);
    const Eigen::Index tokens = x.rows() / sequences;
    for (Eigen::Index s = 0; s < sequences; ++s) {
        Eigen::Map<RowVector> last_row(&last(s, 0), x.cols());
        result.row(s * tokens) = last_row;
        result.middleRows(s * tokens + 1, tokens - 1) = x.middleRows(s * tokens, tokens - 1);
        last_row = x.row((s + 1) * tokens - 1);
    }
    return result;
}

/// The projections of a time mix, a row for each token.
struct TimeMix {
    Matrix receptance, decay, key, value, removal, rate, gate;
};

/// Scales each head of each row to length 1.
void unit_heads(Matrix& x, int dim) {
    for (Eigen::Index row = 0; row < x.rows(); ++row) {
        for (Eigen::Index first = 0; first < x.cols(); first += dim) {
            auto head = x.row(row).segment(first, dim);
            head /= std::max(head.norm(), 1e-12F);
        }
    }
}

TimeMix project(const TimeMixWeights& w, const Matrix& x, const Matrix& previous, int head_dim) {
    const auto mixed = [&](Use use) -> Matrix {
        return x.array() + (previous - x).array().rowwise() * w.shares.row(use).array();
    };
    TimeMix t;
    t.receptance = multiply(mixed(of_receptance), w.receptance);
    t.gate = multiply(logistic(multiply(mixed(of_gate), w.gate.down)), w.gate.up);
    t.rate = logistic(multiply(multiply(mixed(of_rate), w.rate.down), w.rate.up).rowwise() + w.rate_bias);
    const Matrix decay = multiply(multiply(mixed(of_decay), w.decay.down).array().tanh(), w.decay.up);
    t.decay = (-0.606531F * logistic(decay.rowwise() + w.decay_bias).array())
                  .exp(); // 0.606531 = e^-0.5 bounds the rate of decay
    t.key = multiply(mixed(of_key), w.key);
    t.removal = t.key.array().rowwise() * w.removal_scale.array();
    unit_heads(t.removal, head_dim);
    t.key.array() *= 1.0F + (t.rate.array() - 1.0F).rowwise() * w.rate_scale.array();
    t.value = multiply(mixed(of_value), w.value);
    return t;
}

/// Layers after the first take a share of each value from the first layer.
void mix_values(const TimeMixWeights& w, const Matrix& x, const Matrix& previous, Matrix& value, Matrix& first) {
    if (w.value_mix.down.size() == 0) {
        first = value;
        return;
    }
    const Matrix mixed = x.array() + (previous - x).array().rowwise() * w.shares.row(of_value).array();
    const Matrix share =
        logistic(multiply(multiply(mixed, w.value_mix.down), w.value_mix.up).rowwise() + w.value_mix_bias);
    value += (first - value).cwiseProduct(share);
}

/// The state of each head decays per channel, drops the value stored for the key and stores the new one. The receptance
/// reads it.
Matrix recur(const TimeMix& t, const cellar::StridedView<float, 4>& state) {
    Matrix out(t.key.rows(), t.key.cols());
    const Eigen::Index sequences = state.extent(0);
    const Eigen::Index tokens = out.rows() / sequences;
    const Eigen::Index dim = state.extent(2);
    for (Eigen::Index row = 0; row < out.rows(); ++row) {
        for (Eigen::Index head = 0; head < state.extent(1); ++head) {
            Eigen::Map<Matrix> s(&state(row / tokens, head, 0, 0), dim, dim);
            const auto of_head = [&](const Matrix& m) { return m.row(row).segment(head * dim, dim); };
            const RowVector removal = of_head(t.removal);
            const Eigen::VectorXf held = -(s * removal.transpose());
            s.array().rowwise() *= of_head(t.decay).array();
            s.noalias() += of_head(t.value).transpose() * of_head(t.key);
            s.noalias() += held * removal.cwiseProduct(of_head(t.rate));
            out.row(row).segment(head * dim, dim).transpose() = s * of_head(t.receptance).transpose();
        }
    }
    return out;
}

/// Adds the value of each head, weighted by the product of its key and receptance.
void add_bonus(const TimeMix& t, const RowVector& bonus, int dim, Matrix& out) {
    for (Eigen::Index row = 0; row < out.rows(); ++row) {
        for (Eigen::Index first = 0; first < out.cols(); first += dim) {
            const float agreement = t.key.row(row)
                                        .segment(first, dim)
                                        .cwiseProduct(t.receptance.row(row).segment(first, dim))
                                        .dot(bonus.segment(first, dim));
            out.row(row).segment(first, dim) += agreement * t.value.row(row).segment(first, dim);
        }
    }
}

} // namespace

Matrix Rwkv::embed(std::span<const int> tokens) const {
    Matrix x(static_cast<Eigen::Index>(tokens.size()), config().hidden_size);
    Eigen::Index row = 0;
    for (const int token : tokens) x.row(row++) = weights_.embedding.row(token);
    return normalise(x, weights_.embedding_norm);
}

void Rwkv::layer(int layer, const LayerState& state, Matrix& x, Matrix& first_values) const {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    const int dim = config().head_dim();
    {
        const TimeMixWeights& mix = w.time_mix;
        const Matrix z = normalise(x, mix.norm);
        const Matrix previous = previous_rows(z, state.time_token);
        TimeMix t = project(mix, z, previous, dim);
        mix_values(mix, z, previous, t.value, first_values);
        Matrix y = normalise(recur(t, state.key_value), mix.head_norm, head_epsilon, dim);
        add_bonus(t, mix.bonus, dim, y);
        x += multiply(y.cwiseProduct(t.gate), mix.output);
    }
    {
        const ChannelMixWeights& mix = w.channel_mix;
        const Matrix z = normalise(x, mix.norm);
        const Matrix mixed =
            z.array() + (previous_rows(z, state.channel_token) - z).array().rowwise() * mix.share.array();
        x += multiply(multiply(mixed, mix.key).cwiseMax(0.0F).array().square(), mix.value);
    }
}

Matrix Rwkv::classify(const Matrix& x) const {
    return multiply(normalise(x, weights_.norm), weights_.classifier);
}

} // namespace rwkv
