// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_call.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/score.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/element.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cellar {

/// The results of `attend` for some queries over a part of the cells that they see.
template <class T>
struct PartialAttention {
    StridedView<T, 3> out;             ///< [tokens, heads, value_dim]
    StridedView<float, 2> log_sum_exp; ///< [tokens, heads]
};

namespace detail {

/// A violation unless one part can be merged into the other.
template <class T>
void expect_parts(const PartialAttention<T>& into, const PartialAttention<T>& other) {
    for (int r = 0; r < 3; ++r)
        CELLAR_EXPECTS(into.out.extent(r) == other.out.extent(r), "merge_attention: extent ", r, " is ",
                       into.out.extent(r), ", expected ", other.out.extent(r), " as in the other part");
    for (int r = 0; r < 2; ++r)
        CELLAR_EXPECTS(into.log_sum_exp.extent(r) == into.out.extent(r)
                           && other.log_sum_exp.extent(r) == into.out.extent(r),
                       "merge_attention: extent ", r, " of the results is ", into.out.extent(r),
                       ", expected the same of each log_sum_exp, which have ", into.log_sum_exp.extent(r), " and ",
                       other.log_sum_exp.extent(r));
    for (const PartialAttention<T>* part : {&into, &other}) {
        CELLAR_EXPECTS(part->out.size() == 0 || (part->out.pointer != nullptr && part->log_sum_exp.pointer != nullptr),
                       "merge_attention: a part of null pointers, expected memory for its results");
        expect_aligned("merge_attention", "results", part->out.pointer);
        expect_aligned("merge_attention", "elements of the log_sum_exp", part->log_sum_exp.pointer);
    }
    CELLAR_EXPECTS(!may_overlap(into.out, other.out),
                   "merge_attention: the results of the parts overlap, expected other memory");
    expect_apart("merge_attention", "results", into.out);
    expect_apart("merge_attention", "log_sum_exp", into.log_sum_exp);
    CELLAR_EXPECTS(!may_overlap_rows(into.log_sum_exp, as_rows(other.log_sum_exp)),
                   "merge_attention: the log_sum_exp of the parts overlap, expected other memory");
    CELLAR_EXPECTS(!may_overlap_rows(into.log_sum_exp, into.out) && !may_overlap_rows(into.log_sum_exp, other.out)
                       && !may_overlap_rows(other.log_sum_exp, into.out),
                   "merge_attention: a log_sum_exp overlaps the results, expected other memory");
}

} // namespace detail

/// Replaces `into` by the attention over the cells of both parts, and its `log_sum_exp` by theirs. The parts have no
/// cell in common, as where a history is divided between two memories. Exact up to rounding; computes in float, in host
/// memory. Give learned sinks to one of the two calls of `attend` only. Different extents, memory that is null or not
/// aligned, and results that overlap are violations. O(elements).
template <class T>
void merge_attention(const PartialAttention<T>& into, const PartialAttention<T>& other,
                     Where where = Where::current()) {
    const detail::Caller caller{where};
    detail::expect_parts(into, other);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (std::int64_t token = 0; token < into.out.extent(0); ++token)
        for (std::int64_t head = 0; head < into.out.extent(1); ++head) {
            float& sum = into.log_sum_exp(token, head);
            const float others = other.log_sum_exp(token, head);
            if (sum == -infinity && others == -infinity) continue; // neither has seen anything
            const MergedSoftmax all = merge_softmax({sum, 1}, {others, 1});
            for (std::int64_t d = 0; d < into.out.extent(2); ++d) {
                T& x = into.out(token, head, d);
                const float y = static_cast<float>(other.out(token, head, d));
                x = static_cast<T>((all.own * static_cast<float>(x) + all.other * y) / all.sum.sum);
            }
            sum = all.sum.largest + std::log(all.sum.sum);
        }
}

} // namespace cellar
