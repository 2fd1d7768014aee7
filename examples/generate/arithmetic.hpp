// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "weights.hpp"

#include <Eigen/Core>

namespace llama {

/// y = x / sqrt(mean(x^2) + eps) * weight, per row.
void rms_norm(const Matrix& x, const RowVector& weight, float eps, Matrix& y);

/// Softmax of each row. A row needs at least one element above -infinity.
void softmax_rows(Matrix& x);

/// x = silu(x) * y
void gate(Matrix& x, const Matrix& y);

/// Rotary positions: pair i of a head at position p is rotated by the angle p * theta^(-2i / dim). (RoFormer,
/// arXiv:2104.09864)
class Rotary {
public:
    /// For positions [0, positions). Sines and cosines are computed in double and rounded.
    Rotary(const Config& config, int positions);

    int positions() const { return static_cast<int>(cos_.rows()); }

    /// Rotates all heads of row i from position 0 to position first + i. The heads of a row are adjacent.
    void rotate(Eigen::Ref<Matrix> rows, Eigen::Index first) const;

private:
    int dim_;
    Pairing pairing_;
    Matrix cos_; // [positions, dim / 2]
    Matrix sin_;
};

} // namespace llama
