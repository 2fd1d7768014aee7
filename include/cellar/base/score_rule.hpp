// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/last_where.hpp>

#include <cstdint>

// What a query sees, and how products become scores. A cache needs no more of it: the arithmetic is in score.hpp.

namespace cellar {

/// What a token of a batch sees: positions [from, to) of its sequence, and those of the window's sinks below `to`.
struct VisibleRange {
    std::int32_t token;    ///< index in the batch
    std::int32_t position; ///< of the token
    std::int32_t from;
    std::int32_t to;

    /// `at`: a position. `sinks`: how many of the first positions the window always shows.
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
        const std::int32_t at = detail::last_where(count, [&](std::int32_t i) { return tokens[i].cell <= cell; });
        return count > 0 && tokens[at].cell == cell ? tokens[at].token : -1;
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
    /// The part of the rule that differs for this query head.
    CELLAR_FUNCTION HeadRule of_head(int query_head) const { return {slopes == nullptr ? 0 : slopes[query_head]}; }
    /// The score without a value that takes part in the head's softmax; -infinity: none.
    CELLAR_FUNCTION float sink(int query_head) const { return sinks == nullptr ? no_score() : sinks[query_head]; }

    /// `product`: of query and key. `apart`: the query's position less the key's.
    CELLAR_FUNCTION Number score(Number product, std::int32_t apart, const HeadRule& head) const; // in score.hpp

    /// Calls f(list) for each list, to replace it by another one.
    template <class F>
    void for_each_list(F f) {
        f(slopes);
        f(sinks);
    }
};

} // namespace cellar
