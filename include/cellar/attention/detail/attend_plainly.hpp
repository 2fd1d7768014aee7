// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/attention/detail/rotated_rows.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score.hpp>
#include <cellar/shift/rotary_angles.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace cellar::detail {

/// A cell that a token sees, and how far behind the token it is.
struct SeenCell {
    Cell cell;
    std::int32_t distance;
    std::int32_t position;
};

/// The cells that a token sees, of those that the mask shows.
template <AttentionSource Source>
std::vector<SeenCell> seen_cells(const Source& source, std::int32_t token, const auto& mask) {
    std::vector<SeenCell> seen;
    const auto add = [&](Cell cell, Position position) {
        if constexpr (requires { source.leaves_out(token, position); })
            if (source.leaves_out(token, position)) return;
        seen.push_back({cell, source.position(token) - position, position.value});
    };
    source.runs(source.sequence(token)).for_each(Position{0}, to_end, [&](Position p, Cell c, int n) {
        for (int i = 0; i < n; ++i)
            if (mask.contains(c + i)) add(c + i, p + i);
    });
    return seen;
}

/// The definition of attention, in double: every element by itself, over the cells of the mask. Only the rule of scores
/// is that of the code that it checks.
template <class Work>
struct PlainAttention {
    const Work& work;

    double score(std::int32_t token, int head, const SeenCell& other) const {
        double sum = 0;
        for (std::int64_t d = 0; d < work.shape.key_dim; ++d)
            sum += double{static_cast<float>(work.q(token, head, d))} * key(work.keys, other, head, d);
        return work.rule.score(sum, other.distance, work.rule.of_head(head));
    }

    void run(std::int32_t token, int head, const std::vector<SeenCell>& seen) const {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const double sink = double{work.rule.sink(head)};
        std::vector<double> weights;
        double largest = sink;
        for (const SeenCell& other : seen) {
            weights.push_back(score(token, head, other));
            largest = std::max(largest, weights.back());
        }
        const double base = largest == -infinity ? 0 : largest;
        double sum = std::exp(sink - base);
        for (double& weight : weights) sum += weight = std::exp(weight - base);
        for (std::int64_t d = 0; d < work.shape.value_dim; ++d) {
            double result = 0;
            for (std::size_t i = 0; i < seen.size(); ++i)
                result += weights[i] * element(work.values, seen[i].cell, head, d);
            auto& out = work.out(token, head, d);
            out = static_cast<std::remove_reference_t<decltype(out)>>(static_cast<float>(sum == 0 ? 0 : result / sum));
        }
        if (work.log_sum_exp.pointer != nullptr)
            work.log_sum_exp(token, head) = static_cast<float>(base + std::log(sum));
    }

    double key(const auto& keys, const SeenCell& of, int head, std::int64_t d) const {
        return element(keys, of.cell, head, d);
    }
    template <class Rows>
    double key(const RotatedRows<Rows>& keys, const SeenCell& of, int head, std::int64_t d) const {
        const RotaryAngles& angles = *keys.angles;
        for (int pair = 0; pair < angles.pairs(); ++pair) {
            const std::int64_t first = angles.first(pair);
            const std::int64_t second = angles.second(pair);
            if (d != first && d != second) continue;
            const double angle = of.position * angles.frequency(pair);
            const double a = element(keys.rows, of.cell, head, first);
            const double b = element(keys.rows, of.cell, head, second);
            return d == first ? a * std::cos(angle) - b * std::sin(angle) : a * std::sin(angle) + b * std::cos(angle);
        }
        return element(keys.rows, of.cell, head, d);
    }

    double element(const auto& rows, Cell cell, int head, std::int64_t d) const {
        return double{static_cast<float>(rows.data[rows.mapping(cell, head / work.shape.group(), d)])};
    }
};

/// See `attend`.
template <AttentionSource Source, class Work>
void attend_plainly(Source& source, const Work& work) {
    const PlainAttention<Work> attention{work};
    source.for_each_visible_row([&](std::int64_t row, const auto& mask) {
        const auto token = static_cast<std::int32_t>(row);
        const std::vector<SeenCell> seen = seen_cells(source, token, mask);
        for (int head = 0; head < work.shape.heads; ++head) attention.run(token, head, seen);
    });
}

} // namespace cellar::detail
