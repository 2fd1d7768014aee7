// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/consecutive.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/slot_copy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// A state that is kept when the pass is committed.
struct KeptPoint {
    Position next{};
    std::int32_t tokens = 0; ///< of the sequence's tokens in the batch, how many come before
    Slot slot = 0;
    bool is_checkpoint = false;
};

/// One sequence of a batch.
struct BatchSequence {
    Sequence sequence{};
    Position from{};              ///< position of its first token
    Position next{};              ///< one more than the position of its last token
    std::int32_t first_token = 0; ///< index of its first token among the grouped ones
    std::int32_t tokens = 0;
    std::int32_t first_kept_point = 0;
    std::int32_t kept_points = 0;
    std::int64_t oldest_checkpoint = INT64_MAX; ///< checkpoints are kept from this position on
    Slot source = zero_slot;                    ///< its state before the pass; `zero_slot` if it has none
};

/// The tokens of a batch, grouped by sequence. Only the constructor allocates.
class BatchSequences {
public:
    BatchSequences(std::int32_t sequences, std::int32_t batch)
        : all_{static_cast<std::size_t>(std::min(sequences, batch))},
          index_of_{static_cast<std::size_t>(sequences)},
          tokens_{static_cast<std::size_t>(batch)},
          positions_{static_cast<std::size_t>(batch)} {
        for (std::int32_t s = 0; s < sequences; ++s) index_of_.push_back(none);
    }
    static constexpr std::int64_t bytes_for(std::int32_t sequences, std::int32_t batch) {
        return bytes_of<BatchSequence>(std::min(sequences, batch))
               + bytes_of<std::int32_t>(std::int64_t{sequences} + batch) + bytes_of<Position>(batch);
    }

    /// In the order of their first tokens.
    ReservedList<BatchSequence>& all() { return all_; }
    const ReservedList<BatchSequence>& all() const { return all_; }

    /// Indices into the batch, sequence by sequence.
    const ReservedList<std::int32_t>& tokens() const { return tokens_; }

    /// Groups a batch. Refuses with `not_next`, with no group, if the positions of a sequence do not continue from
    /// `next(sequence)` in ascending order without gaps.
    template <class Next>
    Result<void> group(const Batch& batch, Next next) {
        clear();
        for (std::size_t i = 0; i < batch.positions.size(); ++i) {
            const Position expected = count(batch.sequences[i], batch.positions[i], next);
            if (expected == Position{-1}) continue;
            clear();
            return not_next(batch.sequences[i], expected, batch.positions[i]);
        }
        sort_tokens(batch);
        return {};
    }

    /// Groups as for a batch of this many tokens, spread evenly over the first sequences.
    void pretend(std::int32_t tokens, std::int32_t sequences) {
        clear();
        const std::int32_t used = std::min(tokens, sequences);
        std::int32_t first = 0;
        for (std::int32_t s = 0; s < used; ++s) {
            const std::int32_t own = tokens / used + (s < tokens % used ? 1 : 0);
            all_.push_back({.sequence = Sequence{s}, .next = Position{own}, .first_token = first, .tokens = own});
            first += own;
        }
        for (std::int32_t token = 0; token < tokens; ++token) tokens_.push_back(token);
    }

    void clear() {
        for (const BatchSequence& s : all_) index_of_[static_cast<std::size_t>(s.sequence.value)] = none;
        all_.clear();
        tokens_.clear();
        positions_.clear();
    }

    /// How many of the sequence's tokens come before position p.
    std::int32_t tokens_before(const BatchSequence& s, Position p) const {
        if (s.next - s.from == s.tokens) return p - s.from; // one token at each position
        const Position* const first = positions_.begin() + s.first_token;
        return static_cast<std::int32_t>(std::lower_bound(first, first + s.tokens, p) - first);
    }

private:
    static constexpr std::int32_t none = -1;

    /// Counts a token. Returns -1, or the position that it should have.
    template <class Next>
    Position count(Sequence sequence, Position p, Next next) {
        constexpr Position fits{-1};
        std::int32_t& index = index_of_[static_cast<std::size_t>(sequence.value)];
        if (index == none) {
            const Position expected = next(sequence);
            if (expected != p) return expected;
            index = static_cast<std::int32_t>(all_.size());
            all_.push_back({.sequence = sequence, .from = p, .next = p + 1, .tokens = 1});
            return fits;
        }
        BatchSequence& s = all_[static_cast<std::size_t>(index)];
        ++s.tokens;
        if (p + 1 == s.next) return fits;
        if (p != s.next) return s.next;
        s.next = p + 1;
        return fits;
    }

    void sort_tokens(const Batch& batch) {
        std::int32_t first = 0;
        for (BatchSequence& s : all_) {
            s.first_token = first;
            first += s.tokens;
            s.tokens = 0;
        }
        tokens_.resize(batch.positions.size());
        positions_.resize(batch.positions.size());
        for (std::size_t i = 0; i < batch.positions.size(); ++i) {
            const std::int32_t index = index_of_[static_cast<std::size_t>(batch.sequences[i].value)];
            BatchSequence& s = all_[static_cast<std::size_t>(index)];
            const auto at = static_cast<std::size_t>(s.first_token + s.tokens++);
            tokens_[at] = static_cast<std::int32_t>(i);
            positions_[at] = batch.positions[i];
        }
    }

    ReservedList<BatchSequence> all_;
    ReservedList<std::int32_t> index_of_; // sequence -> index into all_
    ReservedList<std::int32_t> tokens_;   // indices into the batch, sequence by sequence
    ReservedList<Position> positions_;    // of those tokens
};

} // namespace cellar::detail
