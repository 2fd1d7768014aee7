// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/growth.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/recurrent/detail/slot_table.hpp>
#include <cellar/recurrent/kept_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// The states that one sequence keeps, in ascending order; the last is its current one. Only `reserve` allocates;
/// members that add states need room that was reserved.
class KeptStates {
public:
    const TrivialList<KeptState>& all() const { return states_; }

    /// The position of the next token; 0 if nothing is kept.
    Position next() const { return states_.empty() ? Position{0} : states_.back().next; }

    /// The largest position up to p from which the sequence can go on.
    Position nearest(Position p) const {
        const std::size_t n = count_up_to(p);
        return n == 0 ? Position{0} : states_[n - 1].next;
    }

    /// Whether a state at position `next` is kept.
    bool keeps(Position next) const { return next > Position{0} && nearest(next) == next; }

    /// The slot of the state at position `next`, which must be kept.
    Slot slot_at(Position next) const { return states_[count_up_to(next) - 1].slot; }

    void reserve(std::size_t more) {
        if (states_.size() + more <= states_.capacity()) return;
        note_growth();
        states_.reserve(2 * (states_.size() + more));
    }

    void append(KeptState state, SlotTable& slots) {
        states_.push_back(state);
        slots.keep(state.slot);
        if (state.is_checkpoint) slots.mark(state.slot);
    }

    /// Forgets the states behind position `next`.
    void truncate(Position next, SlotTable& slots) {
        while (!states_.empty() && states_.back().next > next) {
            forget(states_.back(), slots);
            states_.pop_back();
        }
    }

    /// Forgets the states at [from, to) that are not checkpoints. O(states from there on).
    void forget_passing(Position from, Position to, SlotTable& slots) {
        KeptState* kept = states_.begin() + static_cast<std::ptrdiff_t>(count_up_to(from - 1));
        for (const KeptState* state = kept; state != states_.end(); ++state) {
            if (!state->is_checkpoint && state->next < to) {
                slots.release(state->slot);
            } else {
                *kept++ = *state;
            }
        }
        states_.erase(kept, states_.end());
    }

    /// Becomes a copy of `other` up to position `next`, sharing its slots.
    void assign(const KeptStates& other, Position next, SlotTable& slots) {
        truncate({-1}, slots);
        for (std::size_t i = 0, n = other.count_up_to(next); i < n; ++i) append(other.states_[i], slots);
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
        states_.erase(state);
    }

private:
    static void forget(const KeptState& state, SlotTable& slots) {
        if (state.is_checkpoint) slots.unmark(state.slot);
        slots.release(state.slot);
    }

    // States at positions up to p. Most queries are about the newest ones.
    std::size_t count_up_to(Position p) const {
        if (states_.empty() || states_.back().next <= p) return states_.size();
        const KeptState* const after = std::upper_bound(
            states_.begin(), states_.end(), p, [](Position value, const KeptState& s) { return value < s.next; });
        return static_cast<std::size_t>(after - states_.begin());
    }

    TrivialList<KeptState> states_;
};

} // namespace cellar::detail
