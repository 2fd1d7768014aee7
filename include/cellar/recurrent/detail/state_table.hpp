// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/schedules.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/recurrent/detail/batch_sequences.hpp>
#include <cellar/recurrent/detail/kept_slots.hpp>
#include <cellar/recurrent/detail/kept_states.hpp>
#include <cellar/recurrent/detail/slot_table.hpp>
#include <cellar/recurrent/state_limits.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar::detail {

/// Which states each sequence keeps, and in which slots. It does not know passes; `StateBook` does. Only `schedule`,
/// `reserve` and the `prepare` functions allocate, before they change anything visible. Those that return a bool do not
/// always allocate, and say whether they did; not before they refuse.
class StateTable {
public:
    StateTable(const StateLimits& limits, Slot slots)
        : limits_{limits},
          slots_{slots},
          kept_{slots_, limits.snapshots},
          states_(static_cast<std::size_t>(limits.sequences)),
          use_(static_cast<std::size_t>(slots)) {
        states_.resize(static_cast<std::size_t>(limits.sequences));
        for (KeptStates& states : states_) states.reserve(planned_states(limits));
    }
    /// What the constructor allocates.
    static constexpr std::int64_t bytes_for(const StateLimits& limits, Slot slots) {
        return SlotTable::bytes_for(slots) + bytes_of<std::int32_t>(slots)
               + limits.sequences * (bytes_of<KeptStates>(1) + KeptStates::bytes_for(planned_states(limits)));
    }

    const StateLimits& limits() const { return limits_; }
    const SlotTable& slots() const { return slots_; }
    SlotTable& slots() { return slots_; }
    /// Which slots the snapshots own that are in place.
    const KeptSlots& snapshots() const { return kept_; }
    KeptSlots& snapshots() { return kept_; }

    bool has(Sequence s) const { return s.value >= 0 && s.value < limits_.sequences; }
    const KeptStates& states(Sequence s) const {
        CELLAR_EXPECTS(has(s), "sequence ", s, ", expected 0 to ", limits_.sequences - 1);
        return states_[static_cast<std::size_t>(s.value)];
    }
    /// The position of the next token of s.
    Position next(Sequence s) const { return states(s).next(); }

    /// The slots that a pass may use for new checkpoints.
    Slot checkpoints_free() const { return static_cast<Slot>(checkpoint_slots(limits_)) - slots_.checkpoints(); }

    /// True if a state is kept that has seen exactly the tokens below p; always true for 0.
    bool can_resume(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "can_resume: position ", p, ", expected 0 or more");
        return resumable_prefix(s, p) == p;
    }

    /// The largest q <= p with can_resume(s, q). O(log states).
    Position resumable_prefix(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "resumable_prefix: position ", p, ", expected 0 or more");
        return states(s).nearest(p);
    }

    [[gnu::cold]] Refusal cannot_rewind(Sequence s, Position p) const {
        return {.reason = Reason::cannot_rewind, .needed = p.value, .available = resumable_prefix(s, p).value};
    }

    /// Checks whether positions [begin, end) of s can be removed: no token may be left behind them, and a state must be
    /// kept at `begin`.
    Result<void> prepare_remove(Sequence s, Position begin, Position end) const {
        CELLAR_EXPECTS(begin.value >= 0 && begin <= end, "remove: positions [", begin, ", ", end,
                       "), expected 0 <= begin <= end");
        const Position next = states(s).next();
        if (begin == end || next <= begin) return {};
        if (end < next) return Reason::cannot_cut;
        if (!can_resume(s, begin)) return cannot_rewind(s, begin);
        return {};
    }

    void finish_remove(Sequence s, Position begin, Position end) noexcept {
        if (begin == end) return;
        if (begin < states(s).next()) own(s).truncate(begin, slots_);
        if (begin == Position{0}) unschedule_all(s);
    }

    /// Checks whether `to` can share the states of `from` up to position `end`, and reserves room for them.
    Result<bool> prepare_copy_prefix(Sequence from, Sequence to, Position end) {
        CELLAR_EXPECTS(end.value >= 0, "copy_prefix: up to position ", end, ", expected 0 or more");
        const KeptStates& source = states(from);
        KeptStates& target = own(to);
        if (from == to) return false;
        if (source.next() > end && !can_resume(from, end)) return cannot_rewind(from, end);
        return target.reserve(std::ssize(source.all()));
    }

    void finish_copy_prefix(Sequence from, Sequence to, Position end) noexcept {
        if (from == to) return;
        own(to).assign(states(from), end, slots_);
        unschedule_all(to);
    }

    /// What keeps the state of s at position `to` after `finish_keep`. Refuses with `cannot_rewind` and
    /// `too_many_snapshots`.
    Result<KeptSlotPointer> prepare_keep(Sequence s, Position, Position to, Resuming) {
        if (!can_resume(s, to)) return cannot_rewind(s, to);
        return kept_.prepare(to);
    }
    void finish_keep(Sequence s, KeptSlot& kept) noexcept {
        kept_.finish(kept, kept.rows() == 0 ? zero_slot : states(s).slot_at(kept.to));
    }

    /// s gives up its states and shares the kept one; if that is offloaded, it gets a slot for it, which is returned.
    /// Refuses with `cannot_rewind` if p is not the end of the snapshot.
    Result<Slot> prepare_restore(Sequence s, const KeptSlot& kept, Position p, Resuming) {
        KeptStates& states = own(s);
        if (p != kept.to)
            return Refusal{.reason = Reason::cannot_rewind, .needed = p.value, .available = kept.to.value};
        states.reserve(1);
        return Slot{kept.slot};
    }
    void finish_restore(Sequence s, const KeptSlot& kept, Position, Slot& slot) noexcept {
        own(s).truncate(Position{-1}, slots_);
        unschedule_all(s);
        if (kept.rows() == 0) return;
        if (kept.is_offloaded()) slot = slots_.take();
        own(s).append({kept.to, slot, false}, slots_);
    }

    /// Makes the current state of s a checkpoint; others may be dropped for it. Does nothing if s has no state.
    Result<void> checkpoint(Sequence s) {
        KeptStates& current = own(s);
        if (limits_.checkpoints == 0) return Reason::no_checkpoints;
        current.mark_current(slots_);
        if (!current.all().empty()) trim(current.all().back().slot);
        return {};
    }

    /// The pass that brings s to position p, or past it, keeps a checkpoint there.
    Result<bool> prepare_schedule(Sequence s) {
        if (limits_.checkpoints == 0) return Reason::no_checkpoints;
        return schedules_.reserve(s, limits_.sequences);
    }
    void finish_schedule(Sequence s, Position p) noexcept { schedules_.add(s, p); }
    bool prepare_unschedule(Sequence s, Position) const {
        static_cast<void>(states(s)); // checks s
        return false;
    }
    void finish_unschedule(Sequence s, Position p) noexcept { schedules_.remove(s, p, p); }

    /// The last position up to p at which a checkpoint of s is wanted; 0 if there is none.
    Position wanted_up_to(Sequence s, Position p) const {
        const std::int32_t interval = limits_.checkpoint_interval;
        const Position regular{interval == 0 ? 0 : p.value / interval * interval};
        return std::max(regular, schedules_.last_up_to(s, p));
    }

    /// Reserves room for `more` states of s.
    bool reserve(Sequence s, std::int32_t more) { return own(s).reserve(more); }

    /// Keeps the states of a pass, in room that was reserved, and forgets those that fell out of the rollback. O(tokens
    /// of s), O(min(rollback, n) + log n) if s keeps n checkpoints older than the rollback, and O(schedules of s) if a
    /// scheduled position is reached.
    void advance(const BatchSequence& s, const KeptPoint* kept_points) {
        KeptStates& kept = own(s.sequence);
        kept.forget_passing(s.from - limits_.rollback, s.next - limits_.rollback, slots_);
        for (const KeptPoint* point = kept_points; point != kept_points + s.kept_points; ++point)
            kept.append({point->next, point->slot, point->is_checkpoint}, slots_);
        schedules_.remove(s.sequence, Position{0}, s.next);
    }

    /// A hash of what the sequences and the snapshots keep, in any order of the snapshots. O(states kept).
    std::uint64_t hash() const {
        Digest digest;
        digest.add(slots_.slots()).add(slots_.free());
        for (Sequence s{0}; s.value < limits_.sequences; ++s.value) {
            const std::span<const KeptState> kept = states(s).all();
            digest.add(static_cast<std::uint64_t>(kept.size()));
            for (const KeptState& state : kept) digest.add(state.next).add(state.slot).add(state.is_checkpoint ? 1 : 0);
            for (const Position p : schedules_.of(s)) digest.add(p);
        }
        std::uint64_t kept_in_any_order = 0;
        for (const KeptSlot* kept : kept_.in_place())
            kept_in_any_order += Digest{}.add(kept->to).add(kept->slot).value();
        for (const KeptSlot* kept : kept_.offloaded()) kept_in_any_order += Digest{}.add(kept->to).add(-1).value();
        return digest.add(kept_in_any_order).value();
    }

    /// Drops the checkpoints that the policy values least, but not `spared`, until no more than the limit are left.
    /// O(sequences + states kept) for each.
    void trim(Slot spared = zero_slot) {
        while (slots_.checkpoints() > limits_.checkpoints) forget_least_useful(spared);
    }

private:
    // Of each sequence.
    static constexpr std::int64_t planned_states(const StateLimits& limits) {
        return std::int64_t{limits.rollback} + 2;
    }

    KeptStates& own(Sequence s) { return const_cast<KeptStates&>(std::as_const(*this).states(s)); }

    void unschedule_all(Sequence s) noexcept { schedules_.remove(s, Position{0}, to_end); }

    /// Calls `visit(checkpoint, value)` for all. The value of a checkpoint is how many positions would have to be
    /// recomputed without it: those since the sequence's previous checkpoint.
    template <class Visit>
    void for_each_checkpoint(Visit visit) const {
        for (const KeptStates& kept : states_) {
            Position before{0};
            for (const KeptState& state : kept.all()) {
                if (!state.is_checkpoint) continue;
                visit(state, state.next - before);
                before = state.next;
            }
        }
    }

    void forget_least_useful(Slot spared) {
        const auto use = [&](Slot slot) -> std::int32_t& { return use_[static_cast<std::size_t>(slot)]; };
        for_each_checkpoint([&](const KeptState& c, std::int32_t) { use(c.slot) = 0; });
        if (limits_.checkpoint_policy == CheckpointPolicy::spread)
            for_each_checkpoint([&](const KeptState& c, std::int32_t n) { use(c.slot) = std::max(use(c.slot), n); });
        Slot least = spared;
        for_each_checkpoint([&](const KeptState& c, std::int32_t) {
            if (c.slot == spared) return;
            const auto rank = [&](Slot slot) { return std::pair{use(slot), slots_.marked_at(slot)}; };
            if (least == spared || rank(c.slot) < rank(least)) least = c.slot;
        });
        for (KeptStates& kept : states_) kept.unmark(least, kept.next() - limits_.rollback, slots_);
    }

    StateLimits limits_;
    SlotTable slots_;
    KeptSlots kept_;                  // by snapshots
    ReservedList<KeptStates> states_; // of each sequence
    Schedules schedules_;             // of checkpoints
    TrivialList<std::int32_t> use_;   // by slot; scratch memory of forget_least_useful
};

} // namespace cellar::detail
