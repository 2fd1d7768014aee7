// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/id_span.hpp>
#include <cellar/base/ids.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace cellar {

/// Which positions a memory accepts.
enum class Positions {
    /// A sequence's tokens follow its last one, in the order of the batch: each token's position is one more than that
    /// of the token before, or equal to it if both are in the same batch (the patches of an image may share a
    /// position). Anything else is refused with `not_next`. The first one must find everything it sees, else
    /// `cannot_resume`.
    consecutive,
    any, ///< gaps, any order, and positions that the sequence already has: such a token is added there
};

namespace detail {

// Not inlined into every pass, most of which store all tokens.
[[gnu::noinline]] inline std::int32_t count_stored(std::span<const std::uint8_t> stored) {
    return static_cast<std::int32_t>(std::ssize(stored) - std::count(stored.begin(), stored.end(), std::uint8_t{0}));
}

/// The token of its sequence before token i in the batch; -1: there is none. O(1) if they are neighbours.
[[gnu::noinline]] inline std::int32_t token_before(IdSpan<Sequence> sequences, std::size_t i) {
    std::int32_t before = static_cast<std::int32_t>(i) - 1;
    while (before >= 0 && sequences[static_cast<std::size_t>(before)] != sequences[i]) --before;
    return before;
}

} // namespace detail

/// The tokens of one forward pass: a position and a sequence for each, with any mix of sequences. `begin` reads the
/// lists and does not keep them; `BatchBuilder` is a batch with memory of its own. `Positions` says which positions are
/// accepted.
struct Batch {
    IdSpan<Position> positions;
    IdSpan<Sequence> sequences;
    /// Empty, or a number for each token, less than the number of tokens in the batch. Tokens of one sequence with the
    /// same number, 0 or more, are a group: they see one another, as the tokens of an image do. -1: the token belongs
    /// to no group, and sees no later position.
    std::span<const std::int32_t> groups = {};
    /// Empty, or an entry for each token, 0 if this memory does not store it: another one does, as where a sequence is
    /// divided between several. Such a token takes no cell, and its keys and values are not put. It sees what a token
    /// at its position sees, of what is stored here. A `Cache` with `Positions::any` accepts it.
    std::span<const std::uint8_t> stored = {};
    /// Empty, or a tree of drafts: for each token the index of its parent in the batch, or -1 if it follows what its
    /// sequence held before the batch. A parent comes before its children in the batch. It has their sequence and a
    /// smaller position, the one before theirs unless positions may have gaps. A token then sees, as far as its window
    /// reaches, what its sequence held before the batch, its ancestors, and itself: in `attend`, in masks and in
    /// `visible`. A row of `lists` has the tokens of all branches. A pass with several branches cannot be committed; a
    /// memory of states refuses it with `cannot_branch`.
    std::span<const std::int32_t> parents = {};

    std::int32_t tokens() const { return static_cast<std::int32_t>(positions.size()); }

    /// How many tokens are stored. O(tokens) unless `stored` is empty.
    std::int32_t stored_tokens() const { return stored.empty() ? tokens() : detail::count_stored(stored); }
};

} // namespace cellar
