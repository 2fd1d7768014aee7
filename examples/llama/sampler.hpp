// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "weights.hpp"

#include <Eigen/Core>

#include <cstdint>
#include <random>
#include <stdexcept>

namespace llama {

/// Draws tokens from logits: the same ones for the same seed, whatever the standard library.
class Sampler {
public:
    /// Temperature 0 takes the most likely token.
    Sampler(std::uint64_t seed, double temperature) : random_{seed}, temperature_{temperature} {}

    int operator()(const Matrix& logits) {
        const auto row = logits.row(0);
        if (!row.allFinite()) throw std::runtime_error{"the model gives logits that are no numbers"};
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

private:
    /// In [0, 1). The distributions of <random> differ between libraries.
    double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

    std::mt19937_64 random_;
    double temperature_;
    Eigen::Array<double, 1, Eigen::Dynamic> weights_;
};

} // namespace llama
