// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

// What attention computes between the products of queries and keys and the weights of values: written once, for the
// host and for devices.

namespace cellar {

/// What a token of a batch sees: positions [from, to) of its sequence, and those of the window's sinks below `to`.
struct VisibleRange {
    std::int32_t token;    ///< index in the batch
    std::int32_t position; ///< of the token
    std::int32_t from;
    std::int32_t to;

    CELLAR_FUNCTION bool sees(std::int32_t at, std::int32_t sinks) const {
        return at < to && (at >= from || at < sinks);
    }
};

/// A token of the batch, by its cell.
struct CellToken {
    Cell cell;
    std::int32_t token;
};

/// The branches of a batch. Null: there are none.
struct TokenTree {
    const std::int32_t* parents; ///< of each token, -1 for the first of a branch; a parent comes before its children
    const CellToken* tokens;     ///< those that are stored, sorted by cell
    std::int32_t count;          ///< of these

    /// The token of the batch in a cell; -1 if it is not of the batch.
    CELLAR_FUNCTION std::int32_t token_in(Cell cell) const {
        std::int32_t low = 0;
        for (std::int32_t n = count; n > 0;) {
            const std::int32_t below = n / 2;
            const bool before = tokens[low + below].cell < cell;
            low = before ? low + below + 1 : low;
            n = before ? n - below - 1 : below;
        }
        return low < count && tokens[low].cell == cell ? tokens[low].token : -1;
    }

    /// True if `ancestor` is the token or comes before it in its branch.
    CELLAR_FUNCTION bool is_in_branch(std::int32_t ancestor, std::int32_t token) const {
        while (token > ancestor) token = parents[token];
        return token == ancestor;
    }
};

/// The score of a cell that a query does not see, and the largest score of a query that sees none: -infinity.
CELLAR_FUNCTION constexpr float no_score() {
    return __builtin_bit_cast(float, 0xff800000U);
}

/// What of a rule differs from one query head to another.
struct HeadRule {
    float slope;
};

namespace detail {

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

} // namespace detail

} // namespace cellar

#define CELLAR_SCORE_NAMESPACE one_score
#define CELLAR_SCORE_FUNCTION CELLAR_FUNCTION inline
#include <cellar/base/score_of.hpp>
#undef CELLAR_SCORE_NAMESPACE
#undef CELLAR_SCORE_FUNCTION

namespace cellar {

/// How products of queries and keys become scores: see `AttentionOptions`. Lists have a number for each query head, or
/// are null.
template <class Number = float>
struct ScoreRule {
    Number scale;
    Number soft_cap; ///< 0: none
    const float* slopes;
    const float* sinks;

    /// False if `of_head` and positions make no difference.
    bool needs_head() const { return slopes != nullptr; }
    CELLAR_FUNCTION HeadRule of_head(int query_head) const { return {slopes == nullptr ? 0 : slopes[query_head]}; }
    CELLAR_FUNCTION float sink(int query_head) const { return sinks == nullptr ? no_score() : sinks[query_head]; }

    /// `product`: of query and key. `apart`: the query's position less the key's.
    CELLAR_FUNCTION Number score(Number product, std::int32_t apart, const HeadRule& head) const {
        return detail::one_score::score_of(detail::OneScore<Number>{apart}, product, *this, head);
    }

    /// Calls f(list) for each list, to replace it by another one.
    template <class F>
    void for_each_list(F f) {
        f(slopes);
        f(sinks);
    }
};

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
