// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"

#include "arithmetic.hpp"

#include <cmath>

namespace llama {

void HeadAttention::weigh(const Plane& queries, const Plane& keys, const Plane& mask) {
    weights_.noalias() = queries * keys.transpose();
    weights_ = weights_ / std::sqrt(static_cast<float>(queries.cols())) + mask;
    softmax_rows(weights_);
}

void HeadAttention::apply(const Plane& values, bool transposed, Eigen::Ref<Matrix> out) const {
    if (transposed) {
        out.noalias() = weights_ * values.transpose();
    } else {
        out.noalias() = weights_ * values;
    }
}

} // namespace llama
