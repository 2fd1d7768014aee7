// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/attention_work.hpp>
#include <cellar/base/function.hpp>
#include <cellar/base/last_where.hpp>
#include <cellar/base/score.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/divisor.hpp>

#include <cstddef>
#include <cstdint>

// What kernels of attention read and write, beside the lists of base/attention_work.hpp. No number depends on a layer,
// except those of blocks.

namespace cellar::detail::kernel {

/// Queries of one sequence that go through its history together, for one head of the keys. Row r is query head
/// r % group of token r / group.
struct AttentionBlock {
    std::int32_t first_token; ///< of the sequence, in the list of tokens
    std::int32_t first_row;
    std::int32_t rows;
    std::int32_t first_run; ///< of the sequence, in the list of runs
    std::int32_t runs;
    std::int32_t head_cells;        ///< cells [0, head_cells) are visited, which are sinks,
    std::int32_t skipped;           ///< then, after that many others,
    std::int32_t cells;             ///< the rest of as many as this
    std::int32_t see_from;          ///< all rows see all positions from here
    std::int32_t see_to;            ///< to here
    std::int32_t parts;             ///< into which the cells are divided
    std::int32_t part_cells;        ///< of a part; multiple of a tile
    std::int32_t first_item;        ///< an item is a part, for all heads
    std::int32_t first_joined;      ///< rows of all heads in earlier blocks of several parts
    std::int64_t first_partial_row; ///< partial results of earlier blocks

    /// The number of the i-th cell that is visited.
    CELLAR_FUNCTION std::int32_t number(std::int32_t i) const { return i < head_cells ? i : i + skipped; }

    /// The index of a partial result.
    CELLAR_FUNCTION std::int64_t partial_row(std::int32_t part, int head, int heads, int row) const {
        return first_partial_row + (std::int64_t{part} * heads + head) * rows + row;
    }
};

/// The last block whose number `First` is at most `index`: the block of an item or of a joined row.
template <std::int32_t AttentionBlock::*First>
CELLAR_FUNCTION const AttentionBlock& block_of(const AttentionBlock* blocks, std::int32_t count, std::int32_t index) {
    return blocks[last_where(count, [&](std::int32_t i) { return blocks[i].*First <= index; })];
}

/// The softmax of rows so far, in memory of the device.
struct PartialResults {
    float* values;    ///< [rows, value_dim]
    SoftmaxSum* sums; ///< [rows]
};

/// A view without its extents, which kernels do not ask for: their arguments have little room.
template <class T, int Rank = 3>
struct AttentionRows {
    T* pointer = nullptr;
    std::int64_t strides[std::size_t{Rank}] = {};

    AttentionRows() = default;
    AttentionRows(const StridedView<T, Rank>& rows) : pointer{rows.pointer} {
        for (int r = 0; r < Rank; ++r) strides[r] = rows.stride(r);
    }

    template <class... Indices>
        requires(sizeof...(Indices) == Rank)
    CELLAR_FUNCTION T& operator()(Indices... indices) const {
        const std::int64_t at[std::size_t{Rank}] = {static_cast<std::int64_t>(indices)...};
        std::int64_t offset = 0;
        for (int r = 0; r < Rank; ++r) offset += at[r] * strides[r];
        return pointer[offset];
    }
};

/// What the kernels of a call share. All lists are in memory of the device.
template <class Out>
struct AttentionCall {
    AttentionRows<Out> out;
    AttentionRows<float, 2> log_sum_exp; ///< null: nowhere
    PartialResults partial;
    ScoreRule<float> rule;
    const VisibleRange* tokens;
    const AttentionBlock* blocks;
    std::int32_t block_count;
    std::int32_t value_dim;
    Divisor heads; ///< of the keys
    Divisor group; ///< query heads for each of them
    PriorResults prior{};

    CELLAR_FUNCTION const VisibleRange& token(const AttentionBlock& block, int row) const {
        return tokens[block.first_token + group.divide(block.first_row + row).quotient];
    }
    CELLAR_FUNCTION int query_head(const AttentionBlock& block, int head, int row) const {
        return head * group.value() + group.divide(block.first_row + row).remainder;
    }

    /// Writes the results of a row, whose weighted values are value(d). The team's threads divide the work.
    template <class Team, class Value>
    CELLAR_FUNCTION void write(const Team& team, std::int32_t token, int query_head, SoftmaxSum softmax,
                               const Value& value) const {
        const std::int64_t row = std::int64_t{token} * heads.value() * group.value() + query_head;
        const bool merges = prior.out != nullptr;
        const MergedSoftmax all =
            merges ? merge_softmax(softmax, {prior.log_sum_exp[row], 1}) : MergedSoftmax{softmax, 1, 0};
        const SoftmaxEnd end = end_softmax(all.sum, rule.sink(query_head));
        for (int d = team.team_rank(); d < value_dim; d += team.team_size()) {
            float weighted = value(d);
            if (merges) weighted = weighted * all.own + prior.out[row * value_dim + d] * all.other;
            out(token, query_head, d) = static_cast<Out>(weighted * end.weight);
        }
        if (log_sum_exp.pointer != nullptr && team.team_rank() == 0) log_sum_exp(token, query_head) = end.log_sum_exp;
    }
};

} // namespace cellar::detail::kernel
