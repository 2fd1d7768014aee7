// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arithmetic.hpp"

#include <cmath>

namespace llama {

void rms_norm(const Matrix& x, const RowVector& weight, float eps, Matrix& y) {
    y.resize(x.rows(), x.cols());
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
        const float mean = x.row(i).squaredNorm() / static_cast<float>(x.cols());
        y.row(i) = (x.row(i).array() * weight.array()) / std::sqrt(mean + eps);
    }
}

void softmax_rows(Matrix& x) {
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
        auto row = x.row(i).array();
        row = (row - row.maxCoeff()).exp();
        row /= row.sum();
    }
}

void gate(Matrix& x, const Matrix& y) {
    x.array() *= y.array() / (1.0F + (-x.array()).exp());
}

Rotary::Rotary(const Config& config, int positions)
    : dim_{config.head_dim}, pairing_{config.rope_pairing}, cos_(positions, dim_ / 2), sin_(positions, dim_ / 2) {
    for (int p = 0; p < positions; ++p) {
        for (int i = 0; i < dim_ / 2; ++i) {
            const double angle = p * std::pow(config.rope_theta, -2.0 * i / dim_);
            cos_(p, i) = static_cast<float>(std::cos(angle));
            sin_(p, i) = static_cast<float>(std::sin(angle));
        }
    }
}

void Rotary::rotate(Eigen::Ref<Matrix> rows, Eigen::Index first) const {
    const bool neox = pairing_ == Pairing::neox;
    const Eigen::Index step = neox ? 1 : 2;
    const Eigen::Index distance = neox ? dim_ / 2 : 1;
    for (Eigen::Index row = 0; row < rows.rows(); ++row) {
        for (Eigen::Index head = 0; head < rows.cols(); head += dim_) {
            for (Eigen::Index i = 0; i < dim_ / 2; ++i) {
                float& a = rows(row, head + i * step);
                float& b = rows(row, head + i * step + distance);
                const float x = a;
                const float y = b;
                a = x * cos_(first + row, i) - y * sin_(first + row, i);
                b = y * cos_(first + row, i) + x * sin_(first + row, i);
            }
        }
    }
}

} // namespace llama
