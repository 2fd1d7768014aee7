// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/score_rule.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace cellar::detail {

/// A row of partial results: `dim` floats, and behind them the logarithm of the sum of exp(score). Becomes the row of
/// attention over all parts, which have no cell in common: see `merge_attention`. The parts are added in their order.
/// Parts that have seen nothing (-infinity) add nothing. `parts`: their rows; `weights`: memory for a float each.
/// Writes `dim` floats to `out`, and returns the logarithm of the whole sum.
inline float merge_row(std::span<const float* const> parts, float* weights, std::int64_t dim, float* out) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    float largest = -infinity;
    bool sees = false; // NaN, too, which is larger than nothing
    for (const float* part : parts) {
        largest = std::max(largest, part[dim]);
        sees = sees || part[dim] != -infinity;
    }
    if (!sees) {
        std::fill_n(out, dim, 0.0F);
        return -infinity;
    }
    float sum = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) sum += weights[i] = softmax_factor(parts[i][dim], largest);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const float* const row = parts[i];
        const float weight = weights[i] / sum;
        if (i == 0) {
            for (std::int64_t d = 0; d < dim; ++d) out[d] = weight * row[d];
        } else {
            for (std::int64_t d = 0; d < dim; ++d) out[d] += weight * row[d];
        }
    }
    return largest + std::log(sum);
}

} // namespace cellar::detail
