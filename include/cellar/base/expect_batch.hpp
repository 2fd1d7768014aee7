// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

[[gnu::cold, gnu::noinline]] inline void name_wrong_token(const Batch& batch, std::int32_t sequences) {
    for (std::size_t i = 0; i < batch.positions.size(); ++i) {
        CELLAR_EXPECTS(batch.positions[i].value >= 0 && batch.positions[i] < to_end, "begin: token ", i,
                       " has position ", batch.positions[i], ", expected 0 to ", to_end.value - 1);
        CELLAR_EXPECTS(batch.sequences[i].value >= 0 && batch.sequences[i].value < sequences, "begin: token ", i,
                       " has sequence ", batch.sequences[i], ", expected 0 to ", sequences - 1);
    }
}

// The lists that most batches lack.
[[gnu::noinline]] inline void expect_lists(const Batch& batch) {
    CELLAR_EXPECTS(batch.groups.empty() || batch.groups.size() == batch.positions.size(),
                   "begin: ", batch.groups.size(), " groups, expected none or one for each of ", batch.positions.size(),
                   " tokens");
    for (std::size_t i = 0; i < batch.groups.size(); ++i)
        CELLAR_EXPECTS(batch.groups[i] >= -1 && batch.groups[i] < batch.tokens(), "begin: token ", i, " has group ",
                       batch.groups[i], ", expected -1 to ", batch.tokens() - 1);
    CELLAR_EXPECTS(
        batch.stored.empty() || batch.stored.size() == batch.positions.size(), "begin: ", batch.stored.size(),
        " entries say which tokens are stored, expected none or one for each of ", batch.positions.size(), " tokens");
    CELLAR_EXPECTS(batch.parents.empty() || batch.parents.size() == batch.positions.size(),
                   "begin: ", batch.parents.size(), " parents, expected none or one for each of ",
                   batch.positions.size(), " tokens");
    for (std::size_t i = 0; i < batch.parents.size(); ++i) {
        const std::int32_t parent = batch.parents[i];
        CELLAR_EXPECTS(parent >= -1 && parent < static_cast<std::int64_t>(i), "begin: the parent of token ", i, " is ",
                       parent, ", expected a token before it, or -1 for the first of a branch");
        CELLAR_EXPECTS(parent < 0 || batch.sequences[static_cast<std::size_t>(parent)] == batch.sequences[i],
                       "begin: the parent of token ", i, " is of another sequence, expected one of its own");
    }
}

/// True if one of the tokens is not the child of the token of its sequence before it in the batch. O(tokens), if the
/// tokens of a sequence are neighbours.
[[gnu::noinline]] inline bool has_branches(const Batch& batch) {
    for (std::size_t i = 0; i < batch.parents.size(); ++i)
        if (batch.parents[i] != token_before(batch.sequences, i)) return true;
    return false;
}

/// A violation unless each token's parent has a smaller position; the one before, if there are no gaps.
[[gnu::noinline]] inline void expect_positions_of_tree(const Batch& batch, Positions positions) {
    const bool any = positions == Positions::any;
    for (std::size_t i = 0; i < batch.parents.size(); ++i) {
        if (batch.parents[i] < 0) continue;
        const Position of_parent = batch.positions[static_cast<std::size_t>(batch.parents[i])];
        const std::int32_t apart = batch.positions[i] - of_parent;
        CELLAR_EXPECTS(any ? apart > 0 : apart == 1, "begin: token ", i, " at position ", batch.positions[i],
                       " has a parent at position ", of_parent, ", expected ",
                       any ? "a smaller one" : "the position before it");
    }
}

[[gnu::cold]] inline Refusal batch_too_long(std::int64_t tokens, std::int32_t limit) {
    return {.reason = Reason::batch_too_long, .needed = tokens, .available = limit};
}

/// Checks what every memory expects of a batch. O(tokens), without a branch per token, because every pass runs it.
inline void expect_batch(const Batch& batch, std::int32_t sequences) {
    CELLAR_EXPECTS(batch.sequences.size() == batch.positions.size(), "begin: ", batch.sequences.size(),
                   " sequences, expected one for each of ", batch.positions.size(), " positions");
    CELLAR_EXPECTS(batch.positions.size() < INT32_MAX, "begin: ", batch.positions.size(), " tokens, expected at most ",
                   INT32_MAX - 1);
    if (!batch.groups.empty() || !batch.stored.empty() || !batch.parents.empty()) expect_lists(batch);
    const auto ids = static_cast<std::uint32_t>(sequences);
    const auto end = static_cast<std::uint32_t>(to_end.value);
    bool wrong = false;
    for (std::size_t i = 0; i < batch.positions.size(); ++i)
        wrong |= static_cast<std::uint32_t>(batch.positions[i].value) >= end
                 || static_cast<std::uint32_t>(batch.sequences[i].value) >= ids;
    if (wrong) [[unlikely]]
        name_wrong_token(batch, sequences);
}

} // namespace cellar::detail
