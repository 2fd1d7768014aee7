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
#include <span>
#include <vector>

namespace cellar::detail {

/// A cell that a token sees, and how far behind the token it is.
struct SeenCell {
    Cell cell;
    std::int32_t distance;
};

/// True if `ancestor` is the token or comes before it in its branch.
inline bool is_in_branch(std::span<const std::int32_t> parents, std::int32_t ancestor, std::int32_t token) {
    for (; token >= 0; token = parents[static_cast<std::size_t>(token)])
        if (token == ancestor) return true;
    return false;
}

/// The cells that a token sees, of those that the mask shows.
template <class State>
std::vector<SeenCell> seen_cells(State& state, std::int32_t token, const auto& mask, const AttentionOptions& options) {
    const auto& pass = state.book.pass();
    const auto index = static_cast<std::size_t>(token);
    std::vector<SeenCell> seen;
    const auto add = [&](Cell cell, Position position) {
        const auto* const own = std::find(pass.cells.begin(), pass.cells.end(), cell);
        const bool in_tree = !options.parents.empty() && own != pass.cells.end();
        const auto other = [&] {
            return static_cast<std::int32_t>(pass.token_in(static_cast<std::size_t>(own - pass.cells.begin())));
        };
        if (!in_tree || is_in_branch(options.parents, other(), token))
            seen.push_back({cell, pass.positions[index] - position});
    };
    state.book.table().record(pass.sequences[index]).runs.for_each({0}, to_end, [&](Position p, Cell c, int n) {
        for (int i = 0; i < n; ++i)
            if (mask.contains(c + i)) add(c + i, p + i);
    });
    return seen;
}

/// The definition of attention, in double: every element by itself, over the cells of the mask. It shares nothing with
/// the code that it checks.
template <class Keys, class Values, class Q, class Out>
struct PlainAttention {
    const AttentionShape& shape;
    const Keys& keys;
    const Values& values;
    StridedView<const Q, 3> q;
    StridedView<Out, 3> out;
    const AttentionOptions& options;

    double score(std::int32_t token, int head, const SeenCell& other) const {
        double sum = 0;
        for (std::int64_t d = 0; d < shape.key_dim; ++d) {
            const auto key = static_cast<float>(keys.data[keys.mapping(other.cell, head / shape.group(), d)]);
            sum += double{static_cast<float>(q(token, head, d))} * double{key};
        }
        sum *= options.scale != 0 ? double{options.scale} : 1 / std::sqrt(static_cast<double>(shape.key_dim));
        if (options.soft_cap != 0) sum = options.soft_cap * std::tanh(sum / options.soft_cap);
        if (!options.slopes.empty())
            sum -= double{options.slopes[static_cast<std::size_t>(head)]} * std::abs(other.distance);
        return sum;
    }

    void run(std::int32_t token, int head, const std::vector<SeenCell>& seen) const {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const double sink = options.sinks.empty() ? -infinity : double{options.sinks[static_cast<std::size_t>(head)]};
        std::vector<double> weights;
        double largest = sink;
        for (const SeenCell& other : seen) {
            weights.push_back(score(token, head, other));
            largest = std::max(largest, weights.back());
        }
        const double base = largest == -infinity ? 0 : largest;
        double sum = std::exp(sink - base);
        for (double& weight : weights) sum += weight = std::exp(weight - base);
        for (std::int64_t d = 0; d < shape.value_dim; ++d) {
            double result = 0;
            for (std::size_t i = 0; i < seen.size(); ++i)
                result +=
                    weights[i]
                    * double{static_cast<float>(values.data[values.mapping(seen[i].cell, head / shape.group(), d)])};
            out(token, head, d) = static_cast<Out>(static_cast<float>(sum == 0 ? 0 : result / sum));
        }
        if (options.log_sum_exp.pointer != nullptr)
            options.log_sum_exp(token, head) = static_cast<float>(base + std::log(sum));
    }
};

/// See `attend`.
template <class State, class Keys, class Values, class Q, class Out>
void attend_plainly(State& state, const AttentionShape& shape, const Keys& keys, const Values& values,
                    StridedView<const Q, 3> q, StridedView<Out, 3> out, const AttentionOptions& options) {
    const PlainAttention<Keys, Values, Q, Out> attention{shape, keys, values, q, out, options};
    state.book.for_each_visible_row([&](std::int64_t row, const auto& mask) {
        const auto token = static_cast<std::int32_t>(row);
        const std::vector<SeenCell> seen = seen_cells(state, token, mask, options);
        for (int head = 0; head < shape.heads; ++head) attention.run(token, head, seen);
    });
}

} // namespace cellar::detail
