// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gated_network.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cstddef>
#include <generate/arithmetic.hpp>
#include <numeric>
#include <utility>

namespace folder {

using llama::Matrix, llama::RowVector;

GatedNetwork::GatedNetwork(const ModelFolder& folder, const std::string& at, int hidden, int inner)
    : gate{folder.matrix(at + "gate_proj.weight", inner, hidden)},
      up{folder.matrix(at + "up_proj.weight", inner, hidden)},
      down{folder.matrix(at + "down_proj.weight", hidden, inner)} {}

GatedNetwork::GatedNetwork(const Matrix& gate_up, Matrix output)
    : gate{gate_up.topRows(gate_up.rows() / 2)}, up{gate_up.bottomRows(gate_up.rows() / 2)}, down{std::move(output)} {}

Matrix GatedNetwork::forward(const Matrix& x) const {
    Matrix y = x * gate.transpose();
    llama::gate(y, x * up.transpose());
    return y * down.transpose();
}

std::vector<int> largest(const RowVector& numbers, int count) {
    std::vector<int> order(static_cast<std::size_t>(numbers.size()));
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
    std::partial_sort(order.begin(), end, order.end(), [&](int a, int b) { return numbers(a) > numbers(b); });
    order.erase(end, order.end());
    return order;
}

} // namespace folder
