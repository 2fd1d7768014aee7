// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/recurrent/detail/slot_table.hpp>
#include <cellar/recurrent/kept_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cellar::detail {

/// The states that one sequence keeps, in ascending order; the last is its current one. Only `reserve` allocates;
/// members that add states need room that was reserved. Forgetting the oldest states moves no others: the list need not
/// begin where its memory does.
class KeptStates {
public:
    std::span<const KeptState> all() const { return {begin(), states_.size() - first_}; }

    /// The position of the next token; 0 if nothing is kept.
    Position next() const { return states_.empty() ? Position{0} : states_.back().next; }

    /// The largest position up to p from which the sequence can go on.
    Position nearest(Position p) const {
        const KeptState* const end = end_up_to(p);
        return end == begin() ? Position{0} : (end - 1)->next;
    }

    /// Whether a state at position `next` is kept.
    bool keeps(Position next) const { return next > Position{0} && nearest(next) == next; }

    /// The slot of the state at position `next`, which must be kept.
    Slot slot_at(Position next) const { return (end_up_to(next) - 1)->slot; }

    /// Room for `more` states. Returns true if it allocated. Amortised O(more): n states move only if n / 2 were
    /// forgotten or are new.
    bool reserve(std::size_t more) {
        if (states_.size() + more <= states_.capacity()) return false;
        const std::size_t kept = all().size();
        const bool allocates = kept + std::max(kept / 2, more) > states_.capacity();
        if (!allocates) {
            states_.erase(states_.begin(), begin());
        } else {
            TrivialList<KeptState> larger;
            larger.reserve(2 * (kept + more));
            larger.append(begin(), states_.end());
            states_.swap(larger);
        }
        first_ = 0;
        return allocates;
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
            erase(states_.end() - 1, states_.end());
        }
    }

    /// Forgets the states at [from, to) that are not checkpoints. O(log n + states in the range + those before or those
    /// behind it, whichever are fewer).
    void forget_passing(Position from, Position to, SlotTable& slots) {
        auto* kept = const_cast<KeptState*>(end_up_to(from - 1));
        const KeptState* state = kept;
        for (; state != states_.end() && state->next < to; ++state) {
            if (state->is_checkpoint) {
                *kept++ = *state;
            } else {
                slots.release(state->slot);
            }
        }
        erase(kept, state);
    }

    /// Becomes a copy of `other` up to position `next`, sharing its slots.
    void assign(const KeptStates& other, Position next, SlotTable& slots) {
        truncate({-1}, slots);
        const KeptState* const end = other.end_up_to(next);
        for (const KeptState* state = other.begin(); state != end; ++state) append(*state, slots);
    }

    /// Makes the current state a checkpoint.
    void mark_current(SlotTable& slots) {
        if (states_.empty() || states_.back().is_checkpoint) return;
        states_.back().is_checkpoint = true;
        slots.mark(states_.back().slot);
    }

    /// The slot is no longer a checkpoint, and is not kept at all if its position lies before `oldest`.
    void unmark(Slot slot, Position oldest, SlotTable& slots) {
        KeptState* const state =
            std::find_if(begin(), states_.end(), [=](const KeptState& s) { return s.is_checkpoint && s.slot == slot; });
        if (state == states_.end()) return;
        state->is_checkpoint = false;
        slots.unmark(slot);
        if (state->next >= oldest) return;
        slots.release(slot);
        erase(state, state + 1);
    }

private:
    static void forget(const KeptState& state, SlotTable& slots) {
        if (state.is_checkpoint) slots.unmark(state.slot);
        slots.release(state.slot);
    }

    KeptState* begin() { return states_.data() + first_; }
    const KeptState* begin() const { return states_.data() + first_; }

    // The end of the states at positions up to p. Most queries are about the newest or before the oldest ones.
    const KeptState* end_up_to(Position p) const {
        if (states_.empty() || states_.back().next <= p) return states_.end();
        if (begin()->next > p) return begin();
        return std::upper_bound(begin(), states_.end(), p,
                                [](Position value, const KeptState& s) { return value < s.next; });
    }

    // Moves the states on the side that has fewer.
    void erase(const KeptState* from, const KeptState* to) {
        if (from - begin() <= states_.end() - to) {
            std::copy_backward(std::as_const(*this).begin(), from, states_.begin() + (to - states_.begin()));
            first_ += static_cast<std::size_t>(to - from);
        } else {
            states_.erase(from, to);
        }
        if (first_ != states_.size()) return;
        states_.clear();
        first_ = 0;
    }

    TrivialList<KeptState> states_; // from first_ on; without a state, it is empty and first_ is 0
    std::size_t first_ = 0;
};

} // namespace cellar::detail
