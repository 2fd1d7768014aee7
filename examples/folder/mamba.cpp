// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrence.hpp"

#include <Eigen/Core>

#include <cstdint>
#include <generate/arithmetic.hpp>
#include <stdexcept>

namespace folder {

using llama::Matrix, llama::RowVector;

namespace {

/// A channel has a state of a few elements, each of which decays at a rate of its own with each token, and takes up the
/// channel's value times the token's key. Keys, queries and steps follow from the values, and have norms.
class Mamba final : public Recurrence {
public:
    Mamba(const ModelFolder& folder, const std::string& at, const cellar::models::LayerDescription& layer,
          float epsilon)
        : channels_{layer.state[1].extents[0]},
          size_{layer.state[1].extents[1]},
          epsilon_{epsilon},
          convolution_{folder, at + "conv1d.", layer.state[0]} {
        const int hidden = folder.integer("hidden_size");
        rank_ = folder.config().value("mamba_dt_rank", nlohmann::json{}).is_number() ? folder.integer("mamba_dt_rank")
                                                                                     : (hidden + 15) / 16;
        if (folder.has(at + "in_proj.bias"))
            throw std::runtime_error{"a recurrent layer has a bias in its projections, expected none"};
        input_ = folder.matrix(at + "in_proj.weight", 2 * std::int64_t{channels_}, hidden);
        select_ = folder.matrix(at + "x_proj.weight", rank_ + 2 * std::int64_t{size_}, channels_);
        step_norm_ = folder.vector(at + "dt_layernorm.weight", rank_);
        key_norm_ = folder.vector(at + "b_layernorm.weight", size_);
        query_norm_ = folder.vector(at + "c_layernorm.weight", size_);
        step_ = folder.matrix(at + "dt_proj.weight", channels_, rank_);
        step_bias_ = folder.vector(at + "dt_proj.bias", channels_);
        decay_ = folder.matrix(at + "A_log", channels_, size_).array().exp();
        passed_on_ = folder.vector(at + "D", channels_);
        output_ = folder.matrix(at + "out_proj.weight", hidden, channels_);
    }

    Matrix forward(const Matrix& x, const Remembered& remembered) const override {
        const Matrix projected = x * input_.transpose();
        Matrix values = convolution_.forward(projected.leftCols(channels_), remembered.inputs);
        llama::gate(values, Matrix::Ones(values.rows(), values.cols()));
        const Matrix selected = values * select_.transpose();
        Matrix steps = normed(selected.leftCols(rank_), step_norm_) * step_.transpose();
        steps.rowwise() += step_bias_;
        const Matrix keys = normed(selected.middleCols(rank_, size_), key_norm_);
        const Matrix queries = normed(selected.rightCols(size_), query_norm_);
        Matrix out(x.rows(), channels_);
        Eigen::Map<Matrix> state{remembered.state, channels_, size_};
        for (Eigen::Index token = 0; token < x.rows(); ++token) {
            for (int channel = 0; channel < channels_; ++channel) {
                const float step = softplus(steps(token, channel));
                const float value = values(token, channel);
                auto own = state.row(channel).array();
                own = (-step * decay_.row(channel).array()).exp() * own + step * value * keys.row(token).array();
                out(token, channel) = state.row(channel).dot(queries.row(token)) + passed_on_(channel) * value;
            }
        }
        Matrix gated = projected.rightCols(channels_);
        llama::gate(gated, out);
        return gated * output_.transpose();
    }

private:
    Matrix normed(const Matrix& x, const RowVector& weight) const {
        Matrix y;
        llama::rms_norm(x, weight, epsilon_, y);
        return y;
    }

    int channels_, size_;
    int rank_ = 0; // of steps
    float epsilon_;
    Convolution convolution_;
    Matrix input_;  // values, gates
    Matrix select_; // steps, keys, queries
    RowVector step_norm_, key_norm_, query_norm_;
    Matrix step_;
    RowVector step_bias_;
    Matrix decay_; // [channels, size]
    RowVector passed_on_;
    Matrix output_;
};

} // namespace

std::unique_ptr<const Recurrence> mamba(const ModelFolder& folder, const std::string& at,
                                        const cellar::models::LayerDescription& layer, float epsilon) {
    return std::make_unique<Mamba>(folder, at, layer, epsilon);
}

} // namespace folder
