// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "weights.hpp"

#include <Eigen/Core>

#include <cstdint>
#include <random>

namespace llama {

/// Draws tokens from logits. Equal seeds give equal tokens with every standard library.
class Sampler {
public:
    /// With temperature 0, always takes the most likely token.
    Sampler(std::uint64_t seed, double temperature) : random_{seed}, temperature_{temperature} {}

    /// Draws from one row of logits.
    int operator()(const Matrix& logits, Eigen::Index row = 0);

private:
    /// In [0, 1). The distributions of <random> differ between libraries.
    double uniform();

    std::mt19937_64 random_;
    double temperature_;
    Eigen::Array<double, 1, Eigen::Dynamic> weights_;
};

} // namespace llama
