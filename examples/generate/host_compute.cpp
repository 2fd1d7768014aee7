// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host_compute.hpp"

#include "arithmetic.hpp"

#include <cmath>

namespace llama {

void HostCompute::attend(const Plane& queries, const Head& keys, const Head& values, const Plane& mask,
                         Eigen::Ref<Matrix> out) {
    if (keys.transposed) {
        weights_.noalias() = queries * keys.plane;
    } else {
        weights_.noalias() = queries * keys.plane.transpose();
    }
    weights_ = weights_ / std::sqrt(static_cast<float>(dim_)) + mask;
    softmax_rows(weights_);
    if (values.transposed) {
        out.noalias() = weights_ * values.plane.transpose();
    } else {
        out.noalias() = weights_ * values.plane;
    }
}

} // namespace llama
