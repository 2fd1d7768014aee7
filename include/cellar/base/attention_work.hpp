// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/base/view.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

// What a call of `attend` computes, for backends that do it themselves: see `ComputesAttention`.

namespace cellar {

/// The heads and dims of a call of `attend`.
struct AttentionShape {
    std::int32_t tokens;
    int heads;
    int kv_heads;
    std::int64_t key_dim;
    std::int64_t value_dim;

    /// Query heads for each head of the keys.
    int group() const { return heads / kv_heads; }
};

/// What some tokens see, sinks apart: positions [from, to) are seen by one of them at least, [all_from, all_to) by all.
struct VisibleSpan {
    std::int32_t from;
    std::int32_t to;
    std::int32_t all_from;
    std::int32_t all_to;

    /// Of one token or more.
    explicit VisibleSpan(std::span<const VisibleRange> tokens)
        : from{tokens[0].from}, to{tokens[0].to}, all_from{from}, all_to{to} {
        for (const VisibleRange& token : tokens) {
            from = std::min(from, token.from);
            to = std::max(to, token.to);
            all_from = std::max(all_from, token.from);
            all_to = std::min(all_to, token.to);
        }
    }
};

/// Neighbouring positions of a sequence in neighbouring cells. The cells that the batch's tokens of one sequence see
/// are numbered in the order of positions.
struct VisibleRun {
    std::int32_t position;
    Cell cell;
    std::int32_t first; ///< number of the first cell
};

/// What the tokens of a pass see: the same for all its layers.
struct AttentionLists {
    /// The tokens of one sequence, and its runs from the first position that these see to the last.
    struct Sequence {
        std::int32_t first_token; ///< among `tokens`
        std::int32_t tokens;
        std::int32_t first_run; ///< among `runs`
        std::int32_t runs;
        std::int32_t cells; ///< of the runs
    };

    std::span<const Sequence> sequences;
    std::span<const VisibleRange> tokens; ///< sorted by sequence
    std::span<const VisibleRun> runs;
    std::int32_t sinks = 0; ///< of the window

    /// How many of a sequence's cells lie before a position. O(log runs).
    std::int32_t cells_before(const Sequence& s, std::int32_t position) const {
        const auto first = runs.begin() + s.first_run;
        const auto next =
            std::partition_point(first, first + s.runs, [&](const VisibleRun& run) { return run.position < position; });
        if (next == first) return 0;
        const std::int32_t end = next == first + s.runs ? s.cells : next->first;
        return std::min(end, next[-1].first + (position - next[-1].position));
    }
};

/// The keys or the values of a layer.
template <class TheMapping, class E>
struct StoredRows {
    using Mapping = TheMapping;
    using element_type = E;

    Mapping mapping;
    const E* data;
    std::int32_t dim; ///< the elements of a row that are read, from the first one on
};

/// What the elements of keys and values were divided by before they were stored: queries and results are multiplied by
/// it. Null: nothing.
struct RowFactors {
    const float* keys = nullptr;   ///< [kv_heads, key_dim]
    const float* values = nullptr; ///< [kv_heads, value_pitch]
    std::int64_t value_pitch = 0;
};

/// What the same queries got over other cells, in memory of the backend: the call merges it into its results. Null:
/// nothing.
struct PriorResults {
    const float* out = nullptr;         ///< [tokens, heads, value_dim]
    const float* log_sum_exp = nullptr; ///< [tokens, heads]
};

/// One layer's attention: arguments of `attend`, which were checked. `Keys` and `Values` are `StoredRows`, or
/// `StoredUnits` (layout/stored_units.hpp) in a format of fewer bits. Lists of the rule and of the tree are in memory
/// of the host, everything else is where the backend's buffers are.
template <class Keys, class Values, class Q, class Out, class Number = float>
struct AttentionWork {
    AttentionShape shape;
    ScoreRule<Number> rule;
    TokenTree tree;
    Keys keys;
    Values values;
    StridedView<const Q, 3> q;
    StridedView<Out, 3> out;
    StridedView<float, 2> log_sum_exp; ///< null: nowhere
    RowFactors factors{};              ///< of the layer
    PriorResults prior{};              ///< only for a backend that `MergesAttention`
};

} // namespace cellar
