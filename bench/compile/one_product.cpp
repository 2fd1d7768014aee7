// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measure for one_cache.cpp: a translation unit with one product of Eigen.
#include <Eigen/Core>

Eigen::MatrixXf product(const Eigen::MatrixXf& a, const Eigen::MatrixXf& b) {
    return a * b;
}
