// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sampler.hpp"

#include <stdexcept>

namespace llama {

int Sampler::operator()(const Matrix& all_logits, Eigen::Index which) {
    const auto row = all_logits.row(which);
    if (!row.allFinite()) throw std::runtime_error{"the logits are not finite numbers"};
    Eigen::Index best = 0;
    const double largest = row.maxCoeff(&best);
    if (temperature_ == 0) return static_cast<int>(best);
    weights_ = ((row.array().cast<double>() - largest) / temperature_).exp();
    double rest = weights_.sum() * uniform();
    for (Eigen::Index token = 0; token < weights_.size(); ++token) {
        rest -= weights_(token);
        if (rest < 0) return static_cast<int>(token);
    }
    return static_cast<int>(best);
}

double Sampler::uniform() {
    return static_cast<double>(random_() >> 11) * 0x1p-53;
}

} // namespace llama
