// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/sliding_list.hpp>
#include <cellar/recurrent/detail/slot_table.hpp>
#include <cellar/recurrent/kept_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// The states that one sequence keeps, in ascending order; the last is its current one. Only `reserve` allocates;
/// members that add states need room that was reserved. Forgetting the oldest states moves no others.
class KeptStates {
public:
    std::span<const KeptState> all() const { return {states_.begin(), static_cast<std::size_t>(states_.size())}; }

    /// The position of the next token; 0 if nothing is kept.
    Position next() const { return states_.empty() ? Position{0} : states_.back().next; }

    /// The largest position up to p from which the sequence can go on.
    Position nearest(Position p) const {
        const std::int64_t end = end_up_to(p);
        return end == 0 ? Position{0} : states_[end - 1].next;
    }

    /// Whether a state at position `next` is kept.
    bool keeps(Position next) const { return next > Position{0} && nearest(next) == next; }

    /// The slot of the state at position `next`, which must be kept.
    Slot slot_at(Position next) const { return states_[end_up_to(next) - 1].slot; }

    /// Room for `more` states. Returns true if it allocated. Amortised O(more).
    bool reserve(std::int64_t more) { return states_.reserve(more); }
    /// Once the first room was that for so many states.
    static constexpr std::int64_t bytes_for(std::int64_t states) { return SlidingList<KeptState>::bytes_for(states); }

    void append(KeptState state, SlotTable& slots) {
        states_.push_back(state);
        slots.keep(state.slot);
        if (state.is_checkpoint) slots.mark(state.slot);
    }

    /// Forgets the states after position `next`.
    void truncate(Position next, SlotTable& slots) {
        const std::int64_t end = end_up_to(next);
        for (std::int64_t i = states_.size(); i-- > end;) forget(states_[i], slots);
        states_.close(end, states_.size());
    }

    /// Forgets the states at [from, to) that are not checkpoints. O(log n + states in the range + those before or those
    /// after it, whichever are fewer).
    void forget_passing(Position from, Position to, SlotTable& slots) {
        std::int64_t kept = end_up_to(from - 1);
        std::int64_t i = kept;
        for (; i < states_.size() && states_[i].next < to; ++i) {
            if (states_[i].is_checkpoint) {
                states_[kept++] = states_[i];
            } else {
                slots.release(states_[i].slot);
            }
        }
        states_.close(kept, i);
    }

    /// Becomes a copy of `other` up to position `next`, sharing its slots.
    void assign(const KeptStates& other, Position next, SlotTable& slots) {
        truncate(Position{-1}, slots);
        const std::int64_t end = other.end_up_to(next);
        for (std::int64_t i = 0; i < end; ++i) append(other.states_[i], slots);
    }

    /// Makes the current state a checkpoint.
    void mark_current(SlotTable& slots) {
        if (states_.empty() || states_.back().is_checkpoint) return;
        states_.back().is_checkpoint = true;
        slots.mark(states_.back().slot);
    }

    /// The slot is no longer a checkpoint, and is not kept at all if its position lies before `oldest`.
    void unmark(Slot slot, Position oldest, SlotTable& slots) {
        KeptState* const state = std::find_if(states_.begin(), states_.end(),
                                              [=](const KeptState& s) { return s.is_checkpoint && s.slot == slot; });
        if (state == states_.end()) return;
        state->is_checkpoint = false;
        slots.unmark(slot);
        if (state->next >= oldest) return;
        slots.release(slot);
        states_.close(state - states_.begin(), state - states_.begin() + 1);
    }

private:
    static void forget(const KeptState& state, SlotTable& slots) {
        if (state.is_checkpoint) slots.unmark(state.slot);
        slots.release(state.slot);
    }

    // The end of the states at positions up to p.
    std::int64_t end_up_to(Position p) const {
        return states_.first_not([=](const KeptState& s) { return s.next <= p; });
    }

    SlidingList<KeptState> states_;
};

} // namespace cellar::detail
