// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

// Frequencies of rotary position embeddings, in radians per position, one for each pair of elements. The scaling
// functions turn the frequencies that a model was trained with into those for a longer context.

namespace cellar {

namespace detail {

inline void expect_positive(const char* function, const char* what, double number) {
    CELLAR_EXPECTS(number > 0 && std::isfinite(number), function, ": the ", what, " is ", std::to_string(number),
                   ", expected a finite number above 0");
}

} // namespace detail

/// base^(-2i / rotary_dims) for pair i (RoFormer, arXiv:2104.09864, section 3.2.2).
inline std::vector<double> rope_frequencies(int rotary_dims, double base = 10000.0, Where where = Where::current()) {
    const detail::Caller caller{where};
    CELLAR_EXPECTS(rotary_dims > 0 && rotary_dims % 2 == 0, "rope_frequencies: ", rotary_dims,
                   " rotary elements, expected an even number above 0");
    detail::expect_positive("rope_frequencies", "base", base);
    std::vector<double> frequencies;
    for (int i = 0; i < rotary_dims; i += 2) frequencies.push_back(std::pow(base, -double(i) / rotary_dims));
    return frequencies;
}

/// Every frequency divided by the factor (position interpolation, arXiv:2306.15595).
inline std::vector<double> linear_scaled(std::vector<double> frequencies, double factor,
                                         Where where = Where::current()) {
    const detail::Caller caller{where};
    detail::expect_positive("linear_scaled", "factor", factor);
    for (double& frequency : frequencies) frequency /= factor;
    return frequencies;
}

/// Every frequency divided by its own factor, one for each pair, as files of models have them: GGUF's tensor
/// `rope_freqs.weight` (a GGUF file has no parameters of `llama3_scaled`: they are in these factors), its
/// `rope_factors_long.weight` and `rope_factors_short.weight`, and LongRoPE's `long_factor` and `short_factor`
/// (arXiv:2402.13753). Violations: another number of factors than of frequencies; one that is not above 0.
inline std::vector<double> divided_by(std::vector<double> frequencies, std::span<const float> factors,
                                      Where where = Where::current()) {
    const detail::Caller caller{where};
    CELLAR_EXPECTS(factors.size() == frequencies.size(), "divided_by: ", factors.size(), " factors, expected ",
                   frequencies.size(), ", one for each frequency");
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        detail::expect_positive("divided_by", "factor", factors[i]);
        frequencies[i] /= factors[i];
    }
    return frequencies;
}

/// "NTK-aware" interpolation (arXiv:2309.00071, section 3.1): equals `rope_frequencies` with the base multiplied by
/// factor^(d / (d - 2)) for d rotary elements. The lowest frequency is divided by the factor, the highest stays.
inline std::vector<double> ntk_scaled(std::vector<double> frequencies, double factor, Where where = Where::current()) {
    const detail::Caller caller{where};
    detail::expect_positive("ntk_scaled", "factor", factor);
    const double last = static_cast<double>(frequencies.size()) - 1.0;
    for (std::size_t i = 1; i < frequencies.size(); ++i)
        frequencies[i] *= std::pow(factor, -static_cast<double>(i) / last);
    return frequencies;
}

namespace detail {

inline constexpr double two_pi = 6.283185307179586476925286766559;

/// `kept` = 1: the frequency as trained; 0: divided by the factor.
inline double interpolated(double frequency, double factor, double kept) {
    kept = kept < 0.0 ? 0.0 : kept > 1.0 ? 1.0 : kept;
    return frequency * (kept + (1.0 - kept) / factor);
}

} // namespace detail

/// The parameters of `llama3_scaled`, by their names in a model's configuration.
struct Llama3Scaling {
    double factor = 8.0;                ///< by how much low frequencies are divided
    double original_context = 8192.0;   ///< tokens: the context that the model was first trained with
    double low_frequency_factor = 1.0;  ///< rotations within that context: pairs with fewer are divided by the factor
    double high_frequency_factor = 4.0; ///< rotations: pairs with more stay; more than `low_frequency_factor`
};

/// Llama 3.1's interpolation by parts (arXiv:2407.21783, and the code that Meta published with it). The frequency of a
/// pair that completes fewer than `low_frequency_factor` full rotations within the original context is divided by the
/// factor; that of a pair that completes more than `high_frequency_factor` stays. In between, the ramp is linear in the
/// number of rotations.
inline std::vector<double> llama3_scaled(std::vector<double> frequencies, const Llama3Scaling& scaling,
                                         Where where = Where::current()) {
    const detail::Caller caller{where};
    detail::expect_positive("llama3_scaled", "factor", scaling.factor);
    detail::expect_positive("llama3_scaled", "original_context", scaling.original_context);
    detail::expect_positive("llama3_scaled", "difference of the high and the low frequency factor",
                            scaling.high_frequency_factor - scaling.low_frequency_factor);
    for (double& frequency : frequencies) {
        const double rotations = scaling.original_context * frequency / detail::two_pi;
        const double kept =
            (rotations - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
        frequency = detail::interpolated(frequency, scaling.factor, kept);
    }
    return frequencies;
}

/// The parameters of `yarn_scaled`.
struct YarnScaling {
    double factor;           ///< by how much low frequencies are divided
    double original_context; ///< tokens: the context that the model was first trained with
    double beta_fast = 32.0; ///< rotations within that context: pairs with more stay
    double beta_slow = 1.0;  ///< rotations: pairs with fewer are divided by the factor
    bool whole_pairs = true; ///< the ramp begins and ends at whole pairs; false for gpt-oss
};

/// YaRN (arXiv:2309.00071): the frequencies of pairs that complete more than `beta_fast` rotations within the original
/// context stay, those of pairs that complete fewer than `beta_slow` are divided by the factor. Between them the ramp
/// is linear in the pair's index, as in the authors' code and in the engines that followed it; the paper's text has it
/// linear in the number of rotations, which is `llama3_scaled` with the factors 1 and 32. `base` is that of the
/// frequencies. The model applies the attention factor itself.
inline std::vector<double> yarn_scaled(std::vector<double> frequencies, double base, const YarnScaling& scaling,
                                       Where where = Where::current()) {
    const detail::Caller caller{where};
    detail::expect_positive("yarn_scaled", "logarithm of the base", std::log(base));
    detail::expect_positive("yarn_scaled", "factor", scaling.factor);
    detail::expect_positive("yarn_scaled", "original_context", scaling.original_context);
    detail::expect_positive("yarn_scaled", "beta_slow", scaling.beta_slow);
    detail::expect_positive("yarn_scaled", "difference of beta_fast and beta_slow",
                            scaling.beta_fast - scaling.beta_slow);
    const auto pairs = static_cast<double>(frequencies.size());
    const auto pair_that_rotates = [&](double times) {
        return pairs * std::log(scaling.original_context / (times * detail::two_pi)) / std::log(base);
    };
    double begin = pair_that_rotates(scaling.beta_fast);
    double end = pair_that_rotates(scaling.beta_slow);
    if (scaling.whole_pairs) {
        begin = std::floor(begin);
        end = std::ceil(end);
    }
    begin = std::fmax(begin, 0.0);
    end = std::fmin(end, 2.0 * pairs - 1.0);
    if (begin == end) end += 0.001; // as in the authors' code
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double kept = 1.0 - (static_cast<double>(i) - begin) / (end - begin);
        frequencies[i] = detail::interpolated(frequencies[i], scaling.factor, kept);
    }
    return frequencies;
}

} // namespace cellar
