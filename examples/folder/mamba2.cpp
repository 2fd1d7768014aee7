// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrence.hpp"

#include <Eigen/Core>

#include <cmath>
#include <generate/arithmetic.hpp>
#include <limits>
#include <stdexcept>

namespace folder {

using llama::Matrix, llama::RowVector;

namespace {

/// What steps are clamped to.
struct StepRange {
    float low = 0;
    float high = std::numeric_limits<float>::infinity();

    explicit StepRange(const nlohmann::json& config) {
        if (config.value("model_type", "") == "nemotron_h") {
            low = config.value("time_step_min", 0.001F);
            return;
        }
        const nlohmann::json limit = config.value("time_step_limit", nlohmann::json{});
        if (!limit.is_array() || limit.size() != 2) return;
        if (limit[0].is_number()) low = limit[0];
        if (limit[1].is_number()) high = limit[1]; // infinity is no number of JSON
    }
};

/// A head has a matrix [dim, size], which decays with each token, and takes up the token's value times its key. Heads of
/// a group have the same keys and queries.
class Mamba2 final : public Recurrence {
public:
    Mamba2(const ModelFolder& folder, const std::string& at, const cellar::models::LayerDescription& layer,
           float epsilon)
        : heads_{layer.state[1].extents[0]},
          dim_{layer.state[1].extents[1]},
          size_{layer.state[1].extents[2]},
          channels_{layer.state[0].extents[1]},
          epsilon_{epsilon},
          steps_{folder.config()},
          convolution_{folder, at + "conv1d.", layer.state[0]} {
        const int hidden = folder.integer("hidden_size");
        if (folder.has(at + "in_proj.bias"))
            throw std::runtime_error{"a recurrent layer has a bias in its projections, expected none"};
        if (heads_ % groups() != 0)
            throw std::runtime_error{"a recurrent layer has " + std::to_string(heads_) + " heads in "
                                     + std::to_string(groups()) + " groups, expected equal groups"};
        norm_groups_ = folder.config().value("model_type", "") == "nemotron_h" ? groups() : 1;
        input_ = folder.matrix(at + "in_proj.weight", width() + channels_ + heads_, hidden);
        log_decay_ = folder.vector(at + "A_log", heads_);
        step_bias_ = folder.vector(at + "dt_bias", heads_);
        passed_on_ = folder.vector(at + "D", heads_);
        norm_ = folder.vector(at + "norm.weight", width());
        output_ = folder.matrix(at + "out_proj.weight", hidden, width());
    }

    Matrix forward(const Matrix& x, const Remembered& remembered) const override {
        const Matrix projected = x * input_.transpose();
        Matrix rows = convolution_.forward(projected.middleCols(width(), channels_), remembered.inputs);
        llama::gate(rows, Matrix::Ones(rows.rows(), rows.cols()));
        Matrix out(x.rows(), width());
        for (Eigen::Index token = 0; token < x.rows(); ++token)
            for (int head = 0; head < heads_; ++head)
                out.row(token).segment(head * dim_, dim_) =
                    recur(head, rows.row(token), projected(token, width() + channels_ + head), remembered.state);
        Matrix gated = projected.leftCols(width());
        llama::gate(gated, out);
        const int size = width() / norm_groups_;
        Matrix group;
        for (int begin = 0; begin < width(); begin += size) {
            llama::rms_norm(gated.middleCols(begin, size), norm_.segment(begin, size), epsilon_, group);
            out.middleCols(begin, size) = group;
        }
        return out * output_.transpose();
    }

private:
    int width() const { return heads_ * dim_; }
    int groups() const { return (channels_ - width()) / (2 * size_); }

    RowVector recur(int head, const RowVector& row, float step_input, float* states) const {
        const int group = head / (heads_ / groups());
        const RowVector value = row.segment(head * dim_, dim_);
        const RowVector key = row.segment(width() + group * size_, size_);
        const RowVector query = row.segment(width() + (groups() + group) * size_, size_);
        const float step = std::fmin(std::fmax(softplus(step_input + step_bias_(head)), steps_.low), steps_.high);
        Eigen::Map<Matrix> state{states + head * dim_ * size_, dim_, size_};
        state = std::exp(-step * std::exp(log_decay_(head))) * state + step * value.transpose() * key;
        return query * state.transpose() + passed_on_(head) * value;
    }

    int heads_, dim_, size_;
    int channels_; // of the convolution: values, keys, queries
    float epsilon_;
    StepRange steps_;
    int norm_groups_ = 1; // each has a norm
    Convolution convolution_;
    Matrix input_; // gates, channels, steps
    RowVector log_decay_, step_bias_, passed_on_;
    RowVector norm_;
    Matrix output_;
};

} // namespace

std::unique_ptr<const Recurrence> mamba2(const ModelFolder& folder, const std::string& at,
                                         const cellar::models::LayerDescription& layer, float epsilon) {
    return std::make_unique<Mamba2>(folder, at, layer, epsilon);
}

} // namespace folder
