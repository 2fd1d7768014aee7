// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace cellar::detail {

/// A cell that a token sees, and its position.
struct SeenCell {
    Cell cell;
    Position position;
};

/// True if `ancestor` is the token or comes before it in its branch.
inline bool is_in_branch(std::span<const std::int32_t> parents, std::int32_t ancestor, std::int32_t token) {
    for (; token >= 0; token = parents[static_cast<std::size_t>(token)])
        if (token == ancestor) return true;
    return false;
}

/// See `attend`. The definition, in double: every element by itself, over the cells of the mask. It shares nothing with
/// the code that it checks.
template <class State, class Keys, class Values, class Q, class Out>
void attend_plainly(State& state, const AttentionShape& shape, const Keys& keys, const Values& values,
                    StridedView<const Q, 3> q, StridedView<Out, 3> out, const AttentionOptions& options) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double scale = options.scale != 0 ? double{options.scale} : 1 / std::sqrt(static_cast<double>(shape.key_dim));
    const auto attend_token = [&](std::int32_t token, Position at, const std::vector<SeenCell>& seen) {
        for (int head = 0; head < shape.heads; ++head) {
            const int kv_head = head / shape.group();
            const double sink =
                options.sinks.empty() ? -infinity : double{options.sinks[static_cast<std::size_t>(head)]};
            std::vector<double> scores;
            double largest = sink;
            for (const SeenCell& other : seen) {
                double score = 0;
                for (std::int64_t d = 0; d < shape.key_dim; ++d)
                    score += double{static_cast<float>(q(token, head, d))}
                             * double{static_cast<float>(keys.data[keys.mapping(other.cell, kv_head, d)])};
                score *= scale;
                if (options.soft_cap != 0) score = options.soft_cap * std::tanh(score / options.soft_cap);
                if (!options.slopes.empty())
                    score -= double{options.slopes[static_cast<std::size_t>(head)]} * (at - other.position);
                scores.push_back(score);
                largest = std::max(largest, score);
            }
            const double base = largest == -infinity ? 0 : largest;
            double sum = std::exp(sink - base);
            for (double& score : scores) sum += score = std::exp(score - base);
            for (std::int64_t d = 0; d < shape.value_dim; ++d) {
                double result = 0;
                for (std::size_t i = 0; i < seen.size(); ++i)
                    result +=
                        scores[i] * double{static_cast<float>(values.data[values.mapping(seen[i].cell, kv_head, d)])};
                out(token, head, d) = static_cast<Out>(static_cast<float>(sum == 0 ? 0 : result / sum));
            }
            if (options.log_sum_exp.pointer != nullptr)
                options.log_sum_exp(token, head) = static_cast<float>(base + std::log(sum));
        }
    };
    const auto& pass = state.book.pass();
    std::vector<SeenCell> seen;
    state.book.for_each_visible_row([&](std::int64_t row, const auto& cells) {
        const auto token = static_cast<std::size_t>(row);
        seen.clear();
        state.book.table()
            .record(pass.sequences[token])
            .runs.for_each({0}, to_end, [&](Position p, Cell c, std::int32_t n) {
                for (std::int32_t i = 0; i < n; ++i) {
                    if (!cells.contains(c + i)) continue;
                    const auto* const own = std::find(pass.cells.begin(), pass.cells.end(), c + i);
                    const bool hidden =
                        !options.parents.empty() && own != pass.cells.end()
                        && !is_in_branch(options.parents, static_cast<std::int32_t>(own - pass.cells.begin()),
                                         static_cast<std::int32_t>(row));
                    if (!hidden) seen.push_back({c + i, p + i});
                }
            });
        attend_token(static_cast<std::int32_t>(row), pass.positions[token], seen);
    });
}

} // namespace cellar::detail
