// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contiguous_data.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/element.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// Rows [tokens, heads, dim] of queries or results as a view: of a view with strides, or of a contiguous range, whose
/// heads follow from its size.
template <class Rows>
auto attention_rows(const char* what, Rows&& rows, std::int64_t tokens, std::int64_t dim) {
    if constexpr (strided<std::remove_cvref_t<Rows>>) {
        static_assert(std::remove_cvref_t<Rows>::rank() == 3, "attend: rows have three extents, [tokens, heads, dim]");
        return strided_view(rows);
    } else {
        const auto size = static_cast<std::int64_t>(std::size(rows));
        const std::int64_t row = tokens * dim;
        const std::int64_t heads = row == 0 ? 0 : size / row;
        CELLAR_EXPECTS(heads * row == size, "attend: the ", what, " are ", size, " elements, expected a multiple of ",
                       row, " for [", tokens, " tokens, heads, ", dim, "]");
        return contiguous_view(contiguous_data("attend", what, rows, heads, dim), tokens, heads, dim);
    }
}

/// The elements a head of results. `rows`: the heads of all tokens.
template <class Out>
std::int64_t value_dim_of(const LayerShape& layer, const Out& out, std::int64_t rows) {
    if (layer.value_dim != 0) return layer.value_dim;
    if constexpr (strided<Out>) {
        return static_cast<std::int64_t>(out.extent(2));
    } else {
        return rows == 0 ? 1 : std::max<std::int64_t>(1, static_cast<std::int64_t>(std::size(out)) / rows);
    }
}

/// The first byte of a view's elements, and the one after its last. Strides may be negative.
struct ByteRange {
    const std::byte* begin;
    const std::byte* end;

    template <class T, int Rank>
    explicit ByteRange(const StridedView<T, Rank>& view)
        : begin{reinterpret_cast<const std::byte*>(view.pointer)}, end{begin} {
        if (view.size() == 0) return;
        std::int64_t first = 0;
        std::int64_t last = 0;
        for (int r = 0; r < Rank; ++r) {
            const std::int64_t offset = (view.extent(r) - 1) * view.stride(r);
            (offset < 0 ? first : last) += offset;
        }
        end = begin + (last + 1) * std::int64_t{sizeof(T)};
        begin += first * std::int64_t{sizeof(T)};
    }

    bool overlaps(const ByteRange& other) const {
        return std::less<>{}(begin, other.end) && std::less<>{}(other.begin, end);
    }
};

/// True if views of as many tokens may share bytes. They do not where the rows of a token lie next to one another in
/// one buffer, as [tokens, queries and results].
template <class Q, class Out>
bool may_overlap(const StridedView<Q, 3>& q, const StridedView<Out, 3>& out) {
    if (q.size() == 0 || out.size() == 0 || !ByteRange{q}.overlaps(ByteRange{out})) return false;
    const std::int64_t step = q.stride(0) * std::int64_t{sizeof(Q)};
    if (step <= 0 || step != out.stride(0) * std::int64_t{sizeof(Out)}) return true;
    const auto of_first = [](auto view) {
        view.extents[0] = 1;
        return ByteRange{view};
    };
    const ByteRange of_q = of_first(q);
    const ByteRange of_out = of_first(out);
    const std::int64_t behind = ((of_out.begin - of_q.begin) % step + step) % step;
    return behind < of_q.end - of_q.begin || behind + (of_out.end - of_out.begin) > step;
}

/// The logarithms as rows of one element.
inline StridedView<float, 3> as_rows(const StridedView<float, 2>& sum) {
    return {sum.pointer, {sum.extent(0), sum.extent(1), 1}, {sum.stride(0), sum.stride(1), 1}};
}

/// A violation unless elements can lie at this address.
template <class T>
void expect_aligned(const char* call, const char* what, const T* pointer) {
    CELLAR_EXPECTS(reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) == 0, call, ": the ", what,
                   " are not aligned, expected an address that is a multiple of ", alignof(T));
}

/// A violation unless a view of elements has memory that they can lie in.
template <class T>
void expect_memory(const char* what, const StridedView<T, 3>& view) {
    if (view.size() == 0) return;
    CELLAR_EXPECTS(view.pointer != nullptr, "attend: the ", what, " are a null pointer, expected memory for [",
                   view.extent(0), ", ", view.extent(1), ", ", view.extent(2), "]");
    expect_aligned("attend", what, view.pointer);
}

/// The dimensions of a view from the smallest stride to the largest. (Not by std::sort, which compiles some thirty
/// functions for each type of view.)
template <class T, int Rank>
auto nested_dimensions(const StridedView<T, Rank>& view) {
    std::array<int, std::size_t{Rank}> order{};
    for (int r = 0; r < Rank; ++r) {
        auto at = static_cast<std::size_t>(r);
        for (; at > 0 && std::abs(view.stride(order[at - 1])) > std::abs(view.stride(r)); --at)
            order[at] = order[at - 1];
        order[at] = r;
    }
    return order;
}

/// A violation if elements that are written may lie in one place, as those of a view whose strides are wrong: each
/// stride is longer than all that the smaller ones reach.
template <class T, int Rank>
void expect_apart(const char* call, const char* what, const StridedView<T, Rank>& view) {
    std::int64_t reached = 0;
    for (const int r : nested_dimensions(view)) {
        if (view.extent(r) <= 1) continue;
        CELLAR_EXPECTS(std::abs(view.stride(r)) > reached, call, ": stride ", r, " of the ", what, " is ",
                       view.stride(r), " and the extent ", view.extent(r), ", expected at least ", reached + 1,
                       ", a place for each element");
        reached += (view.extent(r) - 1) * std::abs(view.stride(r));
    }
}

/// True if the byte `at` of a view's range belongs to an element. The elements are apart, the strides positive.
template <class T>
bool is_of_element(const StridedView<T, 3>& view, std::int64_t at) {
    const auto order = nested_dimensions(view);
    if (at < 0) return false;
    for (std::size_t i = order.size(); i-- > 0;) {
        if (view.extent(order[i]) <= 1) continue;
        const std::int64_t stride = view.stride(order[i]) * std::int64_t{sizeof(T)};
        at -= std::min(at / stride, view.extent(order[i]) - 1) * stride;
    }
    return at < std::int64_t{sizeof(T)};
}

/// True if the log_sum_exp may share bytes with rows. It may lie between them.
template <class T>
bool may_overlap_rows(const StridedView<float, 2>& sum, const StridedView<T, 3>& rows) {
    const ByteRange range{rows};
    if (sum.size() == 0 || rows.size() == 0 || !ByteRange{sum}.overlaps(range)) return false;
    for (int r = 0; r < 3; ++r)
        if (rows.extent(r) > 1 && rows.stride(r) <= 0) return true;
    for (std::int64_t token = 0; token < sum.extent(0); ++token)
        for (std::int64_t head = 0; head < sum.extent(1); ++head) {
            const auto* const at = reinterpret_cast<const std::byte*>(&sum(token, head));
            // Elements are aligned to two bytes at least.
            if (is_of_element(rows, at - range.begin) || is_of_element(rows, at + 2 - range.begin)) return true;
        }
    return false;
}

/// A violation unless the numbers can weigh the scores of that many query heads.
inline void expect_options(const AttentionOptions& options, std::int32_t tokens, std::int64_t heads) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const auto per_head = [&](const char* what, std::span<const float> given) {
        CELLAR_EXPECTS(given.empty() || tokens == 0 || std::ssize(given) == heads, "attend: ", std::ssize(given), " ",
                       what, ", expected one for each of ", heads, " query heads");
    };
    per_head("slopes", options.slopes);
    per_head("sinks", options.sinks);
    for (std::size_t h = 0; h < options.slopes.size(); ++h)
        CELLAR_EXPECTS(std::abs(options.slopes[h]) < infinity, "attend: the slope of query head ", h,
                       " is infinite or not a number, expected a finite one");
    for (std::size_t h = 0; h < options.sinks.size(); ++h)
        CELLAR_EXPECTS(options.sinks[h] < infinity, "attend: the sink of query head ", h,
                       " is infinite or not a number, expected a finite one, or -infinity for none");
    constexpr float least = std::numeric_limits<float>::min(); // the inverse of a smaller number may be infinite
    CELLAR_EXPECTS(options.soft_cap == 0 || (options.soft_cap >= least && options.soft_cap < infinity),
                   "attend: the soft_cap is negative, below 2^-126, infinite or not a number, expected a finite one, "
                   "or 0 for none");
    CELLAR_EXPECTS(std::abs(options.scale) < infinity,
                   "attend: the scale is infinite or not a number, expected a finite one");
    const auto& sum = options.log_sum_exp;
    if (sum.pointer == nullptr) return;
    CELLAR_EXPECTS(sum.extent(0) == tokens && (tokens == 0 || sum.extent(1) == heads), "attend: the log_sum_exp is [",
                   sum.extent(0), ", ", sum.extent(1), "], expected [", tokens, " tokens, ", heads, " heads]");
    expect_aligned("attend", "elements of the log_sum_exp", sum.pointer);
    expect_apart("attend", "log_sum_exp", sum);
}

/// The heads and dims of a call; a violation if its arguments do not fit together.
template <class Q, class Out>
AttentionShape checked_attention(const LayerShape& layer, std::int32_t tokens, const StridedView<Q, 3>& q,
                                 const StridedView<Out, 3>& out, const AttentionOptions& options) {
    static_assert(!std::is_const_v<Out>, "attend: the results are written, expected elements that are not const");
    static_assert(Element<std::remove_const_t<Q>> && Element<Out>,
                  "attend: queries and results are of float, half or bfloat16");
    const std::int64_t heads = q.extent(1);
    CELLAR_EXPECTS(q.extent(0) == tokens && q.extent(2) == layer.key_dim, "attend: the queries are [", q.extent(0),
                   ", ", heads, ", ", q.extent(2), "], expected [", tokens, " tokens, heads, ", layer.key_dim, "]");
    CELLAR_EXPECTS((heads > 0 && heads % layer.kv_heads == 0) || tokens == 0, "attend: ", heads,
                   " query heads, expected a multiple of the layer's ", layer.kv_heads, " heads of keys");
    CELLAR_EXPECTS(out.extent(0) == tokens && out.extent(1) == heads, "attend: the results are [", out.extent(0), ", ",
                   out.extent(1), ", ", out.extent(2), "], expected [", tokens, " tokens, ", heads, " heads, dim]");
    if (layer.value_dim != 0) {
        CELLAR_EXPECTS(out.extent(2) == layer.value_dim, "attend: the results have ", out.extent(2),
                       " elements a head, expected the layer's value_dim of ", layer.value_dim);
    } else {
        CELLAR_EXPECTS(out.extent(2) >= 1 && out.extent(2) <= layer.key_dim, "attend: the results have ", out.extent(2),
                       " elements a head, expected 1 to ", layer.key_dim,
                       ", because the values are the first elements of the keys");
    }
    expect_memory("queries", q);
    expect_memory("results", out);
    expect_apart("attend", "results", out);
    CELLAR_EXPECTS(!may_overlap(q, out), "attend: the results overlap the queries, expected other memory");
    expect_options(options, tokens, heads);
    CELLAR_EXPECTS(!may_overlap_rows(options.log_sum_exp, q) && !may_overlap_rows(options.log_sum_exp, out),
                   "attend: the log_sum_exp overlaps the queries or the results, expected other memory");
    return {tokens, static_cast<int>(heads), layer.kv_heads, layer.key_dim, out.extent(2)};
}

/// The rule of a call with such options.
template <class Number>
ScoreRule<Number> score_rule(const AttentionOptions& options, std::int64_t key_dim) {
    const auto list = [](std::span<const float> given) { return given.empty() ? nullptr : given.data(); };
    return {options.scale != 0 ? Number{options.scale} : 1 / std::sqrt(static_cast<Number>(key_dim)),
            Number{options.soft_cap}, list(options.slopes), list(options.sinks)};
}

/// The results of tokens that see nothing.
template <class Work>
void clear_results(const Work& work) {
    for (std::int64_t token = 0; token < work.out.extent(0); ++token)
        for (std::int64_t head = 0; head < work.out.extent(1); ++head) {
            for (std::int64_t d = 0; d < work.out.extent(2); ++d) work.out(token, head, d) = {};
            if (work.log_sum_exp.pointer != nullptr)
                work.log_sum_exp(token, head) = work.rule.sink(static_cast<int>(head));
        }
}

} // namespace cellar::detail
