// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "format/bounds.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

// Attention over every format beside that over the values that were put: what formats lose is bounded.

namespace test_bounds {

using namespace cellar;
using cellar_test::bounded_dim;

namespace {

constexpr int tokens = 70; // more than a tile
constexpr std::size_t dim{bounded_dim};

std::vector<float> normal_rows(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(tokens * dim);
    for (float& x : rows) x = normal(random);
    return rows;
}

/// Multiples of 1/1024 up to 127/1024, which one of each 16 is: kernels that round queries to bytes lose nothing.
std::vector<float> queries(std::mt19937& random) {
    std::uniform_int_distribution<int> number{-127, 127};
    std::vector<float> rows(tokens * dim);
    for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i] = static_cast<float>(i % 16 == 7 ? 127 : number(random)) / 1024;
    return rows;
}

std::span<const float> row(const std::vector<float>& rows, int token) {
    return std::span{rows}.subspan(static_cast<std::size_t>(token) * dim, dim);
}

struct Expected {
    std::vector<double> results;
    std::vector<double> bounds;
};

/// By the definition. With an error of keys of at most e, a score is wrong by at most s = the sum of |q| e, scaled, and
/// with S, the largest s, a weight by at most a factor of exp(2 S). So a result is wrong by at most (exp(2 S) - 1) times
/// the weighted mean of the values' magnitudes, and by the largest error of a value.
template <class Key, class Value>
Expected expected_results(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v) {
    std::vector<std::vector<double>> of_keys;
    std::vector<std::vector<double>> of_values;
    for (int t = 0; t < tokens; ++t) {
        of_keys.push_back(cellar_test::bounds_of<Key>(row(k, t)));
        of_values.push_back(cellar_test::bounds_of<Value>(row(v, t)));
    }
    const double scale = 1 / std::sqrt(double{bounded_dim});
    Expected expected;
    for (int t = 0; t < tokens; ++t) {
        std::vector<double> weights;
        double wrong = 0;
        double sum = 0;
        for (int c = 0; c <= t; ++c) {
            double score = 0;
            double error = 0;
            for (std::size_t d = 0; d < dim; ++d) {
                score += double{row(q, t)[d]} * row(k, c)[d];
                error += std::abs(double{row(q, t)[d]}) * of_keys[static_cast<std::size_t>(c)][d];
            }
            wrong = std::max(wrong, scale * error);
            weights.push_back(std::exp(scale * score)); // of queries this small, without a danger
            sum += weights.back();
        }
        for (std::size_t d = 0; d < dim; ++d) {
            double value = 0;
            double magnitude = 0;
            double error = 0;
            for (int c = 0; c <= t; ++c) {
                const double weight = weights[static_cast<std::size_t>(c)] / sum;
                value += weight * row(v, c)[d];
                magnitude += weight * std::abs(double{row(v, c)[d]});
                error = std::max(error, of_values[static_cast<std::size_t>(c)][d]);
            }
            expected.results.push_back(value);
            expected.bounds.push_back((std::exp(2 * wrong) - 1) * magnitude + error);
        }
    }
    return expected;
}

template <class Key, class Value>
void check() {
    CAPTURE(Key::name);
    CAPTURE(Value::name);
    std::mt19937 random{3};
    const std::vector<float> q = queries(random);
    const std::vector<float> k = normal_rows(random);
    for (const float outlier : {0.0F, 1e4F}) {
        std::vector<float> v = normal_rows(random);
        if (outlier != 0) v[20 * dim + 5] = outlier;
        const Expected expected = expected_results<Key, Value>(q, k, v);
        Cache<StandardV<Key, Value>> cache{{.layers = 1, .kv_heads = 1, .head_dim = bounded_dim},
                                           {.capacity = tokens, .batch = tokens}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
        pass.put(0, k, v);
        std::vector<float> out(tokens * dim);
        attend(pass, 0, q, out);
        pass.commit();
        // Rounding in float, and of weights and the factors of values to integers: see test_codes.cpp.
        constexpr std::size_t shared = cellar_test::Bound<Value>::values;
        const auto of_kernels = [&](std::size_t d) {
            return (2e-5 + 0x1p-9) * (outlier != 0 && d / shared == 5 / shared ? double{outlier} : 8.0);
        };
        double worst = 0;
        for (std::size_t i = 0; i < out.size(); ++i)
            worst =
                std::max(worst, std::abs(out[i] - expected.results[i]) / (expected.bounds[i] + of_kernels(i % dim)));
        CAPTURE(outlier);
        CHECK(worst < 1);
        CHECK(worst > 0);
    }
}

} // namespace

TEST_CASE("attention over every format is wrong by no more than follows from the bounds of keys and values") {
    check<q8_0, Affine<2>>();
    check<int8_per_head, q8_0>();
    check<fp8_e4m3, int8_per_head>();
    check<fp8_e5m2, fp8_e4m3>();
    check<Affine<8>, fp8_e5m2>();
    check<Affine<6>, Affine<8>>();
    check<q5_1, Affine<6>>();
    check<q5_0, q5_1>();
    check<q4_1, q5_0>();
    check<iq4_nl, q4_1>();
    check<q4_0, iq4_nl>();
    check<nvfp4_four_over_six, q4_0>();
    check<nvfp4, nvfp4_four_over_six>();
    check<Affine<4>, nvfp4>();
    check<mxfp4, Affine<4>>();
    check<Affine<3>, mxfp4>();
    check<Affine<2>, Affine<3>>();
}

} // namespace test_bounds
