// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/recurrent/members.hpp>
#include <cellar/recurrent/parts.hpp>
#include <cellar/recurrent/slot_table.hpp>
#include <cellar/recurrent/state_ledger.hpp>
#include <cellar/recurrent/state_limits.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar {

/// The bookkeeping of a recurrent memory: passes, and with the ledger what is kept. It answers in slots and parts; it
/// knows neither tensors nor memory.
///
/// A state is never overwritten while somebody may need it: a pass reads the slots that sequences have and writes fresh
/// ones. `commit` keeps these; `drop` gives them back, so that nothing ever happened.
///
/// Slots cannot run out. A sequence keeps its states at the last rollback + 1 positions, and checkpoints: at most
/// sequences * (rollback + 1) slots and the checkpoints'. A pass takes a slot for each state that it will keep: at most
/// rollback + 1 a sequence, and as many as there are tokens, and so many checkpoints as of theirs are free.
///
/// Costs, with n tokens in the batch: `begin`, `commit` and `drop` O(n + rollback); a checkpoint O(states kept).
class StateBook {
public:
    /// `checkpoints`: slots for them.
    StateBook(const StateLimits& limits, Slot checkpoints)
        : ledger_{limits, count_slots(limits, checkpoints), checkpoints},
          members_{limits.sequences, limits.batch},
          parts_{limits.sequences, limits.batch} {
        cuts_.reserve(static_cast<std::size_t>(limits.batch));
        starts_.reserve(static_cast<std::size_t>(std::min(limits.sequences, limits.batch)));
    }

    const StateLimits& limits() const { return ledger_.limits(); }
    const StateLedger& ledger() const { return ledger_; }
    StateLedger& ledger() { return ledger_; }

    std::span<const Part> parts() const { return parts_.all(); }

    /// What has to be filled with zeros before the open pass reads it: the slots of the sequences that start.
    std::span<const SlotCopy> starts() const { return starts_; }

    /// Whether a pass can be opened for this batch, or why not; makes room for it.
    Result<void> prepare_begin(const Batch& batch) {
        detail::expect_batch(batch, limits().sequences);
        if (batch.tokens() > limits().batch) return Refusal::batch_too_long;
        const std::int64_t most = std::int64_t{limits().rollback} + 1 + ledger_.checkpoints_free();
        const std::int64_t room = std::min<std::int64_t>(batch.tokens(), most);
        for (const Sequence s : batch.sequences) ledger_.reserve(s, static_cast<std::int32_t>(room));
        const auto next = [&](Sequence s) { return ledger_.states(s).next(); };
        if (!members_.group(batch, next)) return Refusal::not_next;
        if (limits().unequal == Unequal::refuse && !is_equal()) {
            members_.clear();
            return Refusal::unequal_batch;
        }
        return {};
    }

    /// Opens the pass that was prepared, with a fresh slot for each state that it will keep.
    void open() noexcept {
        choose_checkpoints();
        for (detail::Member& m : members_.all()) cut(m);
        for (detail::Cut& c : cuts_) c.slot = ledger_.slots().take();
        for (detail::Member& m : members_.all()) {
            const auto states = ledger_.states(m.sequence).all();
            if (states.empty()) starts_.push_back({zero_slot, cuts_of(m).front().slot});
            if (!states.empty()) m.source = states.back().slot;
        }
        parts_.split(members_, cuts_);
    }

    /// Opens a pass of `tokens` tokens, spread over as many sequences as there are, that keeps nothing: its states are
    /// in fresh slots. Close it by `drop`.
    void reserve(std::int32_t tokens) {
        members_.pretend(tokens, limits().sequences);
        for (detail::Member& m : members_.all()) {
            m.first_cut = static_cast<std::int32_t>(cuts_.size());
            m.cuts = 1;
            cuts_.push_back({m.next, m.tokens, ledger_.slots().take(), false});
        }
        parts_.split(members_, cuts_);
    }

    void commit() noexcept {
        for (const detail::Member& m : members_.all()) ledger_.advance(m, cuts_of(m));
        if (has_checkpoint()) ledger_.trim(zero_slot);
        clear();
    }

    /// The open pass never happened. The slots go back in an order in which the next pass takes the same.
    void drop() noexcept {
        for (std::size_t i = cuts_.size(); i-- > 0;) ledger_.slots().give_back(cuts_[i].slot);
        clear();
    }

private:
    static Slot count_slots(const StateLimits& limits, Slot checkpoints) {
        CELLAR_EXPECTS(limits.sequences > 0, "limits: ", limits.sequences, " sequences, expected at least 1");
        CELLAR_EXPECTS(limits.batch > 0, "limits: a batch of ", limits.batch, ", expected at least 1");
        CELLAR_EXPECTS(limits.rollback >= 0, "limits: a rollback of ", limits.rollback, ", expected 0 or more");
        CELLAR_EXPECTS(limits.checkpoint_interval >= 0, "limits: a checkpoint_interval of ", limits.checkpoint_interval,
                       ", expected 0 or more");
        CELLAR_EXPECTS(limits.checkpoint_interval == 0 || checkpoints > 0,
                       "limits: a checkpoint_interval without checkpoint_bytes, expected room for checkpoints");
        CELLAR_EXPECTS(checkpoints != 1, "limits: checkpoint_bytes has room for one state, expected none or at least "
                                         "two: one that is kept, and one that a pass writes");
        const std::int64_t kept = std::int64_t{limits.sequences} * (std::int64_t{limits.rollback} + 1);
        const std::int64_t slots = kept + std::min<std::int64_t>(limits.batch, kept) + checkpoints;
        CELLAR_EXPECTS(slots <= INT32_MAX, "limits: ", slots, " slots, expected at most ", INT32_MAX);
        return static_cast<Slot>(slots);
    }

    bool is_equal() const {
        const auto all = members_.all();
        return std::all_of(all.begin(), all.end(),
                           [&](const detail::Member& m) { return m.tokens == all.front().tokens; });
    }

    /// As many checkpoints as there is room for: in turn the newest one of each sequence that is not chosen yet.
    void choose_checkpoints() {
        Slot room = ledger_.checkpoints_free();
        for (bool found = true; found && room > 0;) {
            found = false;
            for (detail::Member& m : members_.all()) {
                if (room == 0) break;
                const bool is_first = m.oldest_checkpoint == INT64_MAX;
                const auto end = is_first ? m.next.value : static_cast<std::int32_t>(m.oldest_checkpoint) - 1;
                const Position wanted = ledger_.wanted_up_to(m.sequence, {end});
                if (wanted <= m.from) continue;
                m.oldest_checkpoint = wanted.value;
                found = true;
                --room;
            }
        }
    }

    /// The states of a member that are kept, in ascending order: those that the rollback reaches, and the checkpoints.
    void cut(detail::Member& m) {
        m.first_cut = static_cast<std::int32_t>(cuts_.size());
        const Position oldest = std::max(m.next - limits().rollback, m.from + 1);
        for (Position p = m.next; p > m.from;) {
            cuts_.push_back({p, members_.tokens_before(m, p), 0, is_checkpoint(m, p)});
            const Position before = ledger_.wanted_up_to(m.sequence, p - 1);
            p = std::max(p > oldest ? p - 1 : m.from, is_checkpoint(m, before) ? before : m.from);
        }
        std::reverse(cuts_.begin() + m.first_cut, cuts_.end());
        m.cuts = static_cast<std::int32_t>(cuts_.size()) - m.first_cut;
    }

    bool is_checkpoint(const detail::Member& m, Position p) const {
        return p.value >= m.oldest_checkpoint && ledger_.wanted_up_to(m.sequence, p) == p;
    }

    std::span<const detail::Cut> cuts_of(const detail::Member& m) const {
        return std::span{cuts_}.subspan(static_cast<std::size_t>(m.first_cut), static_cast<std::size_t>(m.cuts));
    }

    bool has_checkpoint() const {
        return std::any_of(cuts_.begin(), cuts_.end(), [](const detail::Cut& c) { return c.is_checkpoint; });
    }

    void clear() {
        members_.clear();
        parts_.clear();
        cuts_.clear();
        starts_.clear();
    }

    StateLedger ledger_;
    detail::Members members_;
    Parts parts_;
    std::vector<detail::Cut> cuts_; // member after member, in ascending order
    std::vector<SlotCopy> starts_;
};

} // namespace cellar
