// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>

#include <cmath>
#include <cstdint>

// The lists that kernels of attention read, and the arithmetic that they share. No number in the lists depends on a
// layer, except those of blocks.

namespace cellar::detail::kernel {

/// Neighbouring positions of a sequence in neighbouring cells. The cells that the batch's tokens of one sequence see
/// are numbered in the order of positions.
struct SeenRun {
    std::int32_t position;
    Cell cell;
    std::int32_t first; ///< number of the first cell
};

/// A token of the batch. It sees positions [from, to) of its sequence, and those of the sinks below `to`.
struct SeenToken {
    std::int32_t token; ///< index in the batch
    std::int32_t position;
    std::int32_t from;
    std::int32_t to;
};

/// A token of the batch, by its cell.
struct CellToken {
    Cell cell;
    std::int32_t token;
};

/// The branches of a batch. Null: there are none.
struct TokenTree {
    const std::int32_t* parents;
    const CellToken* tokens; ///< sorted by cell
    std::int32_t count;

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

    /// True if `ancestor` is the token or comes before it in its branch. A parent comes before its children.
    CELLAR_FUNCTION bool is_in_branch(std::int32_t ancestor, std::int32_t token) const {
        while (token > ancestor) token = parents[token];
        return token == ancestor;
    }
};

/// Queries of one sequence that go through its history together, for one head of the keys. A row is a query: row r of a
/// sequence is of its token r / group, and of the query head r % group among those that share a head.
struct AttentionBlock {
    std::int32_t first_token; ///< of the sequence, in the list of tokens
    std::int32_t first_row;
    std::int32_t rows;
    std::int32_t first_run; ///< of the sequence, in the list of runs
    std::int32_t runs;
    std::int32_t head_cells;        ///< cells [0, head_cells) are visited, which are sinks,
    std::int32_t skipped;           ///< then, behind that many others,
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
    std::int32_t low = 0;
    while (count > 1) {
        const std::int32_t below = count / 2;
        const bool behind = blocks[low + below].*First <= index;
        low = behind ? low + below : low;
        count = behind ? count - below : below;
    }
    return blocks[low];
}

/// The score of a cell that a row does not see, and the largest score of a row that sees none: -infinity.
CELLAR_FUNCTION constexpr float no_score() {
    return __builtin_bit_cast(float, 0xff800000U);
}

/// How scores become weights.
struct ScoreRule {
    float scale;
    float soft_cap;      ///< 0: none
    const float* slopes; ///< one for each query head; null: none

    CELLAR_FUNCTION float operator()(float dot, float slope, std::int32_t distance) const {
        float score = dot * scale;
        if (soft_cap != 0) score = soft_cap * tanhf(score / soft_cap);
        return slopes == nullptr ? score : score - slope * static_cast<float>(distance < 0 ? -distance : distance);
    }
};

/// Strided rows [tokens, heads, dim], without their extents.
template <class T>
struct HeadRows {
    T* data;
    std::int64_t stride_token;
    std::int64_t stride_head;
    std::int64_t stride_dim;

    CELLAR_FUNCTION T& operator()(std::int64_t token, std::int64_t head, std::int64_t d) const {
        return data[token * stride_token + head * stride_head + d * stride_dim];
    }
};

/// Where results of attention go.
template <class Out>
struct AttentionResults {
    HeadRows<Out> out;
    HeadRows<float> log_sum_exp; ///< null: nowhere
    const float* sinks;          ///< a score without a value for each query head; null: none

    /// The sum of a row's scores as it ends up, and by what its values are multiplied.
    struct Ending {
        float weight;
        float log_sum_exp;
    };

    /// `largest`, `sum`: of the weights of a row, relative to the largest score.
    CELLAR_FUNCTION Ending end(float largest, float sum, int query_head) const {
        const float none = no_score();
        float factor = 1;
        if (sinks != nullptr) {
            const float sink = sinks[query_head];
            const float before = largest;
            if (!(sink <= largest)) largest = sink;
            factor = before == none ? 0 : expf(before - largest);
            sum = sum * factor + (sink == none ? 0 : expf(sink - largest));
        }
        if (sum == 0) return {0, none};
        return {factor / sum, largest + logf(sum)};
    }
};

/// The softmax of rows so far, in memory of the device.
struct PartialResults {
    float* values;       ///< [rows, value_dim]
    float* largest_sums; ///< [rows, 2]: the largest score, and the sum of the weights relative to it
};

} // namespace cellar::detail::kernel
