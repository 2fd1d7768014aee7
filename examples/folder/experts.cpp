// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "experts.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace folder {

using llama::Matrix, llama::RowVector;

Experts::Experts(const ModelFolder& folder, const std::string& at, int count, int chosen, int hidden, int inner)
    : chosen_{chosen},
      router_{folder.matrix(at + "router.weight", count, hidden)},
      router_bias_{folder.vector(at + "router.bias", count)},
      up_{folder.matrices(at + "experts.gate_up_proj", count, hidden, 2 * std::int64_t{inner})},
      up_bias_{folder.matrix(at + "experts.gate_up_proj_bias", count, 2 * std::int64_t{inner})},
      down_{folder.matrices(at + "experts.down_proj", count, inner, hidden)},
      down_bias_{folder.matrix(at + "experts.down_proj_bias", count, hidden)} {}

Matrix Experts::forward(const Matrix& x) const {
    Matrix scores = x * router_.transpose();
    scores.rowwise() += router_bias_;
    Matrix out = Matrix::Zero(x.rows(), x.cols());
    for (Eigen::Index token = 0; token < x.rows(); ++token) {
        const std::vector<int> chosen = largest(scores.row(token), chosen_);
        const float highest = scores(token, chosen.front());
        float sum = 0;
        for (const int expert : chosen) sum += std::exp(scores(token, expert) - highest);
        for (const int expert : chosen) {
            const auto e = static_cast<std::size_t>(expert);
            const RowVector up = x.row(token) * up_[e] + up_bias_.row(expert);
            RowVector inner(up.size() / 2);
            for (Eigen::Index i = 0; i < inner.size(); ++i) {
                const float gate = std::min(up(2 * i), 7.0F);
                const float value = std::clamp(up(2 * i + 1), -7.0F, 7.0F);
                inner(i) = (value + 1) * gate / (1 + std::exp(-1.702F * gate));
            }
            out.row(token) +=
                std::exp(scores(token, expert) - highest) / sum * (inner * down_[e] + down_bias_.row(expert));
        }
    }
    return out;
}

} // namespace folder
