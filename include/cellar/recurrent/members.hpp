// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/slot_copy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar::detail {

/// A state of a member that is kept when the pass is committed.
struct Cut {
    Position next{};
    std::int32_t tokens = 0; ///< of the member's in the batch that lie before
    Slot slot = 0;
    bool is_checkpoint = false;
};

/// What a pass knows of one sequence.
struct Member {
    Sequence sequence{};
    Position from{};              ///< of its first token
    Position next{};              ///< behind its last
    std::int32_t first_token = 0; ///< among the tokens that are grouped
    std::int32_t tokens = 0;
    std::int32_t first_cut = 0;
    std::int32_t cuts = 0;
    std::int64_t oldest_checkpoint = INT64_MAX; ///< checkpoints are kept from this position on
    Slot source = zero_slot;                    ///< `zero_slot`: it starts
};

/// The tokens of a batch, grouped by sequence. Nothing allocates but the constructor.
class Members {
public:
    Members(std::int32_t sequences, std::int32_t batch) : member_of_(static_cast<std::size_t>(sequences), nobody) {
        all_.reserve(static_cast<std::size_t>(std::min(sequences, batch)));
        tokens_.reserve(static_cast<std::size_t>(batch));
        positions_.reserve(static_cast<std::size_t>(batch));
    }

    std::span<Member> all() { return all_; }
    std::span<const Member> all() const { return all_; }
    std::span<const std::int32_t> tokens() const { return tokens_; }

    /// False, and empty, if a sequence does not go on from `next(sequence)` without gaps, in ascending order. Its order
    /// of members is that of their first tokens.
    template <class Next>
    bool group(const Batch& batch, Next next) {
        clear();
        for (std::size_t i = 0; i < batch.positions.size(); ++i) {
            if (count(batch.sequences[i], batch.positions[i], next)) continue;
            clear();
            return false;
        }
        settle(batch);
        return true;
    }

    /// That many tokens, spread evenly over the first sequences.
    void pretend(std::int32_t tokens, std::int32_t sequences) {
        clear();
        const std::int32_t members = std::min(tokens, sequences);
        std::int32_t first = 0;
        for (std::int32_t s = 0; s < members; ++s) {
            const std::int32_t own = tokens / members + (s < tokens % members ? 1 : 0);
            all_.push_back({.sequence = {s}, .next = {own}, .first_token = first, .tokens = own});
            first += own;
        }
        for (std::int32_t token = 0; token < tokens; ++token) tokens_.push_back(token);
    }

    void clear() {
        for (const Member& m : all_) member_of_[static_cast<std::size_t>(m.sequence.value)] = nobody;
        all_.clear();
        tokens_.clear();
        positions_.clear();
    }

    /// How many tokens of the member lie before position p.
    std::int32_t tokens_before(const Member& m, Position p) const {
        if (m.next - m.from == m.tokens) return p - m.from; // one token at each position
        const auto first = positions_.begin() + m.first_token;
        return static_cast<std::int32_t>(std::lower_bound(first, first + m.tokens, p) - first);
    }

private:
    static constexpr std::int32_t nobody = -1;

    template <class Next>
    bool count(Sequence s, Position p, Next next) {
        std::int32_t& member = member_of_[static_cast<std::size_t>(s.value)];
        if (member == nobody) {
            if (next(s) != p) return false;
            member = static_cast<std::int32_t>(all_.size());
            all_.push_back({.sequence = s, .from = p, .next = p + 1, .tokens = 1});
            return true;
        }
        Member& m = all_[static_cast<std::size_t>(member)];
        ++m.tokens;
        if (p + 1 == m.next) return true;
        if (p != m.next) return false;
        m.next = p + 1;
        return true;
    }

    void settle(const Batch& batch) {
        std::int32_t first = 0;
        for (Member& m : all_) {
            m.first_token = first;
            first += m.tokens;
            m.tokens = 0;
        }
        tokens_.resize(batch.positions.size());
        positions_.resize(batch.positions.size());
        for (std::size_t i = 0; i < batch.positions.size(); ++i) {
            const std::int32_t member = member_of_[static_cast<std::size_t>(batch.sequences[i].value)];
            Member& m = all_[static_cast<std::size_t>(member)];
            const auto at = static_cast<std::size_t>(m.first_token + m.tokens++);
            tokens_[at] = static_cast<std::int32_t>(i);
            positions_[at] = batch.positions[i];
        }
    }

    std::vector<Member> all_;
    std::vector<std::int32_t> member_of_; // sequence -> index into all_
    std::vector<std::int32_t> tokens_;    // indices into the batch, member after member
    std::vector<Position> positions_;     // of these
};

} // namespace cellar::detail
