// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/recurrent/kept_states.hpp>
#include <cellar/recurrent/members.hpp>
#include <cellar/recurrent/slot_table.hpp>
#include <cellar/recurrent/state_limits.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cellar {

/// Which states each sequence keeps, and in which slots. It knows nothing of passes: `StateBook` does. Only
/// `schedule`, `reserve` and what prepares allocate; they do so before they change anything that can be seen.
class StateLedger {
public:
    /// `checkpoints`: slots for them.
    StateLedger(const StateLimits& limits, Slot slots, Slot checkpoints)
        : limits_{limits},
          checkpoints_{checkpoints},
          slots_{slots},
          records_(static_cast<std::size_t>(limits.sequences)),
          use_(static_cast<std::size_t>(slots)) {
        const auto kept = static_cast<std::size_t>(limits.rollback) + 2;
        for (Record& r : records_) r.states.reserve(kept);
    }

    const StateLimits& limits() const { return limits_; }
    const SlotTable& slots() const { return slots_; }
    SlotTable& slots() { return slots_; }

    bool has(Sequence s) const { return s.value >= 0 && s.value < limits_.sequences; }
    const KeptStates& states(Sequence s) const { return record(s).states; }

    /// Slots that a pass may use for new checkpoints.
    Slot checkpoints_free() const { return checkpoints_ - slots_.checkpoints(); }

    /// True if a state is kept that has seen exactly the tokens below p.
    bool can_resume(Sequence s, Position p) const { return resumable_prefix(s, p) == p; }

    /// The largest q <= p with can_resume(s, q). O(log states).
    Position resumable_prefix(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "resume: position ", p, ", expected 0 or more");
        return states(s).nearest(p);
    }

    /// Whether positions [begin, end) of s can be dropped. From `end` on nothing may be left, and a state has to be kept
    /// at `begin`.
    Result<void> prepare_remove(Sequence s, Position begin, Position end) const {
        CELLAR_EXPECTS(begin.value >= 0 && begin <= end, "remove: positions [", begin, ", ", end,
                       "), expected 0 <= begin <= end");
        const Position next = states(s).next();
        if (begin == end || next <= begin) return {};
        if (end < next) return Refusal::cannot_cut;
        if (!can_resume(s, begin)) return Refusal::cannot_rewind;
        return {};
    }

    void finish_remove(Sequence s, Position begin, Position end) noexcept {
        if (begin == end || states(s).next() <= begin) return;
        record(s).states.truncate(begin, slots_);
        if (begin == Position{0}) record(s).scheduled.clear();
    }

    /// Whether `to` can get the states of `from` up to position `length`; makes room for them.
    Result<void> prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        CELLAR_EXPECTS(length >= 0, "copy_prefix: the length is ", length, ", expected 0 or more");
        const KeptStates& source = states(from);
        KeptStates& target = record(to).states;
        if (from == to) return {};
        if (source.next() > Position{length} && !can_resume(from, {length})) return Refusal::cannot_rewind;
        target.reserve(source.all().size());
        return {};
    }

    void finish_copy_prefix(Sequence from, Sequence to, std::int32_t length) noexcept {
        if (from == to) return;
        record(to).states.assign(states(from), {length}, slots_);
        record(to).scheduled.clear();
    }

    /// The current state of s becomes a checkpoint; others may have to go for it. A sequence without one has nothing to
    /// keep.
    void checkpoint(Sequence s) {
        expect_budget("checkpoint");
        KeptStates& own = record(s).states;
        own.mark_current(slots_);
        if (!own.all().empty()) trim(own.all().back().slot);
    }

    /// A pass that brings s to position p, or beyond, keeps a checkpoint there.
    void schedule(Sequence s, Position p) {
        expect_budget("schedule");
        Record& r = record(s);
        CELLAR_EXPECTS(p > r.states.next(), "schedule: position ", p, ", expected one behind the next token's, ",
                       r.states.next());
        const auto at = std::lower_bound(r.scheduled.begin(), r.scheduled.end(), p);
        if (at == r.scheduled.end() || *at != p) r.scheduled.insert(at, p);
    }

    /// The last position up to p at which a checkpoint of s is wanted; 0 if there is none.
    Position wanted_up_to(Sequence s, Position p) const {
        const std::int32_t interval = limits_.checkpoint_interval;
        const Position regular{interval == 0 ? 0 : p.value / interval * interval};
        const std::vector<Position>& scheduled = record(s).scheduled;
        const auto at = std::upper_bound(scheduled.begin(), scheduled.end(), p);
        return at == scheduled.begin() ? regular : std::max(regular, *(at - 1));
    }

    /// Room for that many more states of s.
    void reserve(Sequence s, std::int32_t more) { record(s).states.reserve(static_cast<std::size_t>(more)); }

    /// The states at the cuts are kept, in room that was reserved, and those that the rollback has passed are not.
    void advance(const detail::Member& m, std::span<const detail::Cut> cuts) {
        Record& r = record(m.sequence);
        r.states.forget_passing(m.from - limits_.rollback, m.next - limits_.rollback, slots_);
        for (const detail::Cut& cut : cuts) r.states.append({cut.next, cut.slot, cut.is_checkpoint}, slots_);
        const auto reached = std::upper_bound(r.scheduled.begin(), r.scheduled.end(), m.next);
        r.scheduled.erase(r.scheduled.begin(), reached);
    }

    /// Forgets the least useful checkpoints, but not `spared`, until enough slots are free for new ones.
    void trim(Slot spared) {
        const Slot most = checkpoints_ - std::max(1, checkpoints_ / 4);
        while (slots_.checkpoints() > std::max(most, 0)) forget_least_useful(spared);
    }

private:
    struct Record {
        KeptStates states;
        std::vector<Position> scheduled; ///< ascending
    };

    const Record& record(Sequence s) const {
        CELLAR_EXPECTS(has(s), "sequence ", s, ", expected 0 to ", limits_.sequences - 1);
        return records_[static_cast<std::size_t>(s.value)];
    }
    Record& record(Sequence s) { return const_cast<Record&>(std::as_const(*this).record(s)); }

    void expect_budget(const char* verb) const {
        CELLAR_EXPECTS(checkpoints_ > 0, verb, ": StateLimits::checkpoint_bytes is 0, expected room for checkpoints");
    }

    /// Calls `visit(checkpoint, use)` for all. The use of a checkpoint is how many positions would have to be fed again
    /// without it: those since the sequence's checkpoint before.
    template <class Visit>
    void for_each_checkpoint(Visit visit) const {
        for (const Record& r : records_) {
            Position before{0};
            for (const KeptState& state : r.states.all()) {
                if (!state.is_checkpoint) continue;
                visit(state, state.next - before);
                before = state.next;
            }
        }
    }

    // O(states kept), and only when a checkpoint was added: every one costs this once.
    void forget_least_useful(Slot spared) {
        const auto use = [&](Slot slot) -> std::int32_t& { return use_[static_cast<std::size_t>(slot)]; };
        for_each_checkpoint([&](const KeptState& c, std::int32_t) { use(c.slot) = 0; });
        for_each_checkpoint([&](const KeptState& c, std::int32_t n) { use(c.slot) = std::max(use(c.slot), n); });
        Slot least = spared;
        for_each_checkpoint([&](const KeptState& c, std::int32_t) {
            if (c.slot == spared) return;
            const auto rank = [&](Slot slot) { return std::pair{use(slot), slots_.marked_at(slot)}; };
            if (least == spared || rank(c.slot) < rank(least)) least = c.slot;
        });
        for (Record& r : records_) r.states.unmark(least, r.states.next() - limits_.rollback, slots_);
    }

    StateLimits limits_;
    Slot checkpoints_;
    SlotTable slots_;
    std::vector<Record> records_;
    std::vector<std::int32_t> use_; // of the checkpoint in each slot, while one is looked for
};

} // namespace cellar
