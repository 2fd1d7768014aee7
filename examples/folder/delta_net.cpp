// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrence.hpp"

#include <Eigen/Core>

#include <cmath>
#include <cstdint>
#include <generate/arithmetic.hpp>
#include <stdexcept>
#include <vector>

namespace folder {

using llama::Matrix, llama::RowVector;

namespace {

/// A head has a matrix [key_dim, value_dim], which decays with each token. Then what it has for the token's key moves
/// towards the token's value.
class DeltaNet final : public Recurrence {
public:
    DeltaNet(const ModelFolder& folder, const std::string& at, const cellar::models::LayerDescription& layer,
             float epsilon)
        : heads_{layer.state[1].extents[0]},
          key_dim_{layer.state[1].extents[1]},
          dim_{layer.state[1].extents[2]},
          key_heads_{folder.integer("linear_num_key_heads")},
          epsilon_{epsilon},
          convolution_{folder, at + "conv1d.", layer.state[0]},
          log_decay_{folder.vector(at + "A_log", heads_)},
          step_bias_{folder.vector(at + "dt_bias", heads_)},
          norm_{folder.vector(at + "norm.weight", dim_)} {
        if (heads_ % key_heads_ != 0)
            throw std::runtime_error{"a recurrent layer has " + std::to_string(heads_) + " heads of values and "
                                     + std::to_string(key_heads_) + " of keys, expected a multiple"};
        const int hidden = folder.integer("hidden_size");
        read_input(folder, at, hidden);
        output_ = folder.matrix(at + "out_proj.weight", hidden, values());
    }

    Matrix forward(const Matrix& x, const Remembered& remembered) const override {
        const Matrix projected = x * input_.transpose();
        Matrix rows = convolution_.forward(projected.leftCols(2 * keys() + values()), remembered.inputs);
        llama::gate(rows, Matrix::Ones(rows.rows(), rows.cols()));
        Matrix out(x.rows(), values());
        for (Eigen::Index token = 0; token < x.rows(); ++token)
            for (int head = 0; head < heads_; ++head)
                out.row(token).segment(head * dim_, dim_) =
                    recur(head, rows.row(token), projected.row(token).tail(2 * heads_), remembered.state);
        Matrix normed;
        llama::rms_norm(out.reshaped<Eigen::RowMajor>(out.size() / dim_, dim_), norm_, epsilon_, normed);
        Matrix gated = projected.middleCols(2 * keys() + values(), values());
        llama::gate(gated, normed.reshaped<Eigen::RowMajor>(out.rows(), out.cols()));
        return gated * output_.transpose();
    }

private:
    int keys() const { return key_heads_ * key_dim_; }
    int values() const { return heads_ * dim_; }

    /// The file has rows by heads of keys. Ours have queries, keys, values, gates, how much to move, and decays.
    void read_input(const ModelFolder& folder, const std::string& at, int hidden) {
        const int many = heads_ / key_heads_;
        const std::vector<int> parts{key_dim_, key_dim_, many * dim_, many * dim_};
        const std::vector<int> small_parts{many, many};
        input_.resize(2 * std::int64_t{keys()} + 2 * values() + 2 * heads_, hidden);
        Eigen::Index row = 0;
        const auto add = [&](const std::string& name, const std::vector<int>& sizes) {
            int all = 0;
            for (const int size : sizes) all += size;
            const Matrix given = folder.matrix(at + name, std::int64_t{key_heads_} * all, hidden);
            int begin = 0;
            for (const int size : sizes) {
                for (int head = 0; head < key_heads_; ++head, row += size)
                    input_.middleRows(row, size) = given.middleRows(head * all + begin, size);
                begin += size;
            }
        };
        add("in_proj_qkvz.weight", parts);
        add("in_proj_ba.weight", small_parts);
    }

    /// `gates`: of all heads how much to move, and the decay.
    RowVector recur(int head, const RowVector& row, const RowVector& gates, float* states) const {
        const int key_head = head / (heads_ / key_heads_);
        const RowVector query = unit(row.segment(key_head * key_dim_, key_dim_)) / std::sqrt(float(key_dim_));
        const RowVector key = unit(row.segment(keys() + key_head * key_dim_, key_dim_));
        const RowVector value = row.segment(2 * keys() + head * dim_, dim_);
        const float moved = 1 / (1 + std::exp(-gates(head)));
        const float step = softplus(gates(heads_ + head) + step_bias_(head));
        Eigen::Map<Matrix> state{states + head * key_dim_ * dim_, key_dim_, dim_};
        state *= std::exp(-step * std::exp(log_decay_(head)));
        state += moved * key.transpose() * (value - key * state);
        return query * state;
    }

    static RowVector unit(const RowVector& row) { return row / std::sqrt(row.squaredNorm() + 1e-6F); }

    int heads_; // of values
    int key_dim_, dim_;
    int key_heads_;
    float epsilon_;
    Convolution convolution_;
    RowVector log_decay_, step_bias_;
    RowVector norm_; // of each head
    Matrix input_;
    Matrix output_;
};

} // namespace

std::unique_ptr<const Recurrence> delta_net(const ModelFolder& folder, const std::string& at,
                                            const cellar::models::LayerDescription& layer, float epsilon) {
    return std::make_unique<DeltaNet>(folder, at, layer, epsilon);
}

} // namespace folder
