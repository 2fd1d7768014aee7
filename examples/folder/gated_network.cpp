// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gated_network.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <generate/arithmetic.hpp>
#include <numeric>
#include <utility>

namespace folder {

using llama::Matrix, llama::RowVector;

GatedNetwork::GatedNetwork(Matrix gate, Matrix up, Matrix down, Activation activation)
    : gate_{std::move(gate)}, up_{std::move(up)}, down_{std::move(down)}, activation_{activation} {}

GatedNetwork::GatedNetwork(const Matrix& gate_up, Matrix down)
    : GatedNetwork{gate_up.topRows(gate_up.rows() / 2), gate_up.bottomRows(gate_up.rows() / 2), std::move(down)} {}

GatedNetwork::GatedNetwork(const ModelFolder& folder, const std::string& at, int hidden, int inner)
    : GatedNetwork{folder.matrix(at + "gate_proj.weight", inner, hidden),
                   folder.matrix(at + "up_proj.weight", inner, hidden),
                   folder.matrix(at + "down_proj.weight", hidden, inner)} {}

Matrix GatedNetwork::forward(const Matrix& x) const {
    Matrix inner = x * gate_.transpose();
    const Matrix up = x * up_.transpose();
    if (activation_ == Activation::gelu) {
        for (float& g : inner.reshaped()) g *= 0.5F * (1.0F + std::tanh(0.7978845608F * (g + 0.044715F * g * g * g)));
        inner.array() *= up.array();
    } else {
        llama::gate(inner, up);
    }
    return inner * down_.transpose();
}

SquaredNetwork::SquaredNetwork(Matrix up, Matrix down) : up_{std::move(up)}, down_{std::move(down)} {}

Matrix SquaredNetwork::forward(const Matrix& x) const {
    const Matrix inner = (x * up_.transpose()).cwiseMax(0.0F).cwiseAbs2();
    return inner * down_.transpose();
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
