// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/score_rule.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

// What attention computes between the products of queries and keys and the weights of values: written once, for the
// host and for devices.

namespace cellar::detail {

/// The arithmetic of one score, for `score_of`.
template <class TheNumber>
struct OneScore {
    using Number = TheNumber;
    std::int32_t apart;

    CELLAR_FUNCTION static Number all(Number x) { return x; }
    CELLAR_FUNCTION static Number quotient(Number x, Number by) { return x / by; }
    CELLAR_FUNCTION static Number tanh(Number x) {
        if constexpr (std::is_same_v<Number, float>) {
            return tanhf(x);
        } else {
            return ::tanh(x);
        }
    }
    CELLAR_FUNCTION Number distance() const { return static_cast<Number>(apart < 0 ? -apart : apart); }
};

} // namespace cellar::detail

#define CELLAR_SCORE_NAMESPACE one_score
#define CELLAR_SCORE_FUNCTION CELLAR_FUNCTION inline
#include <cellar/base/score_of.hpp>

namespace cellar {

template <class Number>
CELLAR_FUNCTION Number ScoreRule<Number>::score(Number product, std::int32_t apart, const HeadRule& head) const {
    return detail::one_score::score_of(detail::OneScore<Number>{apart}, product, *this, head);
}

/// The weights of some scores: the largest score, and the sum of exp(score - largest).
struct SoftmaxSum {
    float largest;
    float sum;
};

/// What is relative to the score `largest` becomes relative to `base`, a score that is as large or larger, by this
/// factor.
CELLAR_FUNCTION inline float softmax_factor(float largest, float base) {
    return largest == no_score() ? 0 : expf(largest - base);
}

/// Two sums as one, and by what the weighted values of each are multiplied.
struct MergedSoftmax {
    SoftmaxSum sum;
    float own;
    float other;
};

/// Joins the sums of two parts of a history, in any order.
CELLAR_FUNCTION inline MergedSoftmax merge_softmax(SoftmaxSum a, SoftmaxSum b) {
    const float largest = a.largest < b.largest ? b.largest : a.largest;
    const float own = softmax_factor(a.largest, largest);
    const float other = softmax_factor(b.largest, largest);
    return {{largest, a.sum * own + b.sum * other}, own, other};
}

/// A query's softmax once all scores are there.
struct SoftmaxEnd {
    float weight; ///< by which its weighted values are multiplied
    /// The logarithm of the sum of exp(score). -infinity: the query has no score, and its results are zeros.
    float log_sum_exp;

    /// False if the query saw no cell, and the rule has no sink.
    CELLAR_FUNCTION bool has_scores() const { return log_sum_exp != no_score(); }
};

/// `sink`: a score without a value that takes part; -infinity: none.
CELLAR_FUNCTION inline SoftmaxEnd end_softmax(SoftmaxSum row, float sink) {
    float factor = 1;
    if (sink != no_score()) {
        const MergedSoftmax all = merge_softmax(row, {sink, 1});
        row = all.sum;
        factor = all.own;
    }
    if (row.sum == 0) return {0, no_score()};
    return {factor / row.sum, row.largest + logf(row.sum)};
}

} // namespace cellar
