// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/fwd.hpp>
#include <cellar/recurrent_memory.hpp>
#include <cellar/recurrent_pass.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace cellar {

/// How a recurrent memory is filled.
struct StateStatistics {
    Slot slots = 0;       ///< all
    Slot used = 0;        ///< that sequences keep, or a pass writes
    Slot checkpoints = 0; ///< of these, however many sequences share them
    std::int64_t bytes = 0;

    bool operator==(const StateStatistics&) const = default;
};

/// The states that the recurrent layers of a model remember (convolution tails, state matrices, ...), for any number of
/// sequences.
///
/// - `States<Tags...>`: the tensors of a layer's state, each named by a tag that derives from `StateTensor`.
/// - `Backend`: where memory is and who works on it.
///
/// A sequence's state lies in a slot. Slots are never overwritten while a sequence, a checkpoint or the rollback needs
/// them, so that dropping a pass, going back and sharing a prefix copy nothing. All memory for states is taken by the
/// constructor and stays where it is. Every verb either does all it says or refuses and leaves everything as it was.
/// Movable, not copyable; one thread at a time.
template <class States, backend Backend>
class RecurrentState {
    using State = detail::RecurrentMemory<States, Backend>;

public:
    /// Throws `std::bad_alloc` if the memory cannot be had.
    RecurrentState(StateShape shape, const StateLimits& limits, Backend backend = Backend{})
        : state_{std::make_unique<State>(std::move(shape), limits, std::move(backend))} {}

    /// Bytes of one sequence's state in all layers, rows filled up to multiples of 16: what a slot takes.
    static constexpr std::int64_t bytes_per_sequence(const StateShape& shape) {
        return State::Store::slot_bytes(shape);
    }

    /// Opens a pass: every sequence of the batch gets a fresh slot for each state that it will keep; a sequence that
    /// starts gets zeros (enqueued). Refuses with `batch_too_long`; with `not_next` if the positions of a sequence do
    /// not go on from its state without gaps, in ascending order (equal ones are allowed, but not across batches);
    /// under `Unequal::refuse` with `unequal_batch`. O(tokens + rollback).
    Result<RecurrentPass<State>> begin(const Batch& batch) {
        if (const Result<void> prepared = prepare_begin(batch); !prepared) return prepared.error();
        return open(batch);
    }

    /// A pass of `tokens` tokens, spread over as many sequences as there are, for sizing buffers and capturing graphs.
    /// It reads and writes slots that are free, and stores nothing.
    RecurrentPass<State> reserve(std::int32_t tokens) {
        state_->expect_no_pass("reserve");
        CELLAR_EXPECTS(tokens >= 0 && tokens <= limits().batch, "reserve: ", tokens, " tokens, expected 0 to ",
                       limits().batch);
        state_->book.reserve(tokens);
        return RecurrentPass<State>{*state_, tokens, true};
    }

    /// `to` shares the states that `from` keeps up to position `length`, in place of its own; no data moves. If both
    /// are the same sequence nothing happens. Refuses with `cannot_rewind` if `from` is beyond `length` and keeps no
    /// state there. O(states kept).
    Result<void> copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        if (const Result<void> prepared = prepare_copy_prefix(from, to, length); !prepared) return prepared;
        finish_copy_prefix(from, to, length);
        return {};
    }

    /// True if a state is kept that has seen exactly the tokens below p. Position 0 needs none.
    bool can_resume(Sequence s, Position p) const { return ledger().can_resume(s, p); }

    /// The largest q <= p with can_resume(s, q). O(log states kept).
    Position resumable_prefix(Sequence s, Position p) const { return ledger().resumable_prefix(s, p); }

    /// Drops positions [begin, end) of s. A range that is empty or behind the last position changes nothing. With `end`
    /// beyond the last position it goes back to `begin`, or refuses with `cannot_rewind` if no state is kept there:
    /// `resumable_prefix` tells the nearest. Otherwise it refuses with `cannot_cut`: a state cannot lose its beginning
    /// or middle. O(states kept).
    Result<void> remove(Sequence s, Position begin, Position end) {
        if (const Result<void> prepared = prepare_remove(s, begin, end); !prepared) return prepared;
        finish_remove();
        return {};
    }

    /// Keeps the current state of s, as long as `StateLimits::checkpoint_bytes` has room for it: where there are too
    /// many checkpoints, those go without which the fewest positions would have to be fed again, the oldest first.
    void checkpoint(Sequence s) {
        state_->expect_no_pass("checkpoint");
        state_->book.ledger().checkpoint(s);
    }

    /// The pass that brings s to position p keeps its state there, as `checkpoint` does; it has one more part for that.
    /// Forgotten when s becomes empty or a copy of another sequence.
    void schedule(Sequence s, Position p) {
        state_->expect_no_pass("schedule");
        state_->book.ledger().schedule(s, p);
    }

    /// The position of the next token of s.
    Position next(Sequence s) const { return ledger().states(s).next(); }

    /// All states that s keeps, in ascending order; the last is the current one. Valid until the next verb that is not
    /// const.
    std::span<const KeptState> kept(Sequence s) const { return ledger().states(s).all(); }

    /// The current state of s. A sequence without tokens has none: a violation.
    StateHandle state(Sequence s) const {
        CELLAR_EXPECTS(!kept(s).empty(), "state: sequence ", s, " has no state, expected one with tokens");
        const Slot slot = kept(s).back().slot;
        return {slot, ledger().slots().generation(slot)};
    }

    /// One tensor of a state in place, [extents...]. A state that is gone is a violation, also if its slot holds
    /// another one by now.
    template <class Tag>
    auto view(int layer, StateHandle handle) const {
        CELLAR_EXPECTS(layer >= 0 && layer < shape().layers(), "layer ", layer, ", expected 0 to ",
                       shape().layers() - 1);
        const SlotTable& slots = ledger().slots();
        CELLAR_EXPECTS(handle.slot >= 0 && handle.slot < slots.slots(), "view: slot ", handle.slot, ", expected 0 to ",
                       slots.slots() - 1);
        CELLAR_EXPECTS(slots.is_current(handle), "view: the state in slot ", handle.slot, " is gone: generation ",
                       handle.generation, ", the slot is at ", slots.generation(handle.slot));
        const auto all = state_->store.template in_slots<Tag>(shape(), layer);
        StridedView<const typename Tag::element_type, Tag::rank> view;
        view.pointer = all.pointer + handle.slot * all.stride(0);
        for (int r = 0; r < Tag::rank; ++r) {
            view.extents[r] = all.extents[r + 1];
            view.strides[r] = all.strides[r + 1];
        }
        return view;
    }

    /// Blocks until all that was enqueued is done.
    void fence() { state_->backend.fence(); }

    const StateShape& shape() const { return state_->shape; }
    const StateLimits& limits() const { return state_->book.limits(); }
    const Backend& backend() const { return state_->backend; }
    const StateLedger& ledger() const { return state_->book.ledger(); }

    /// All slots, free or not.
    Slot slots() const { return ledger().slots().slots(); }

    /// Bytes of states in all slots and layers, and of the rows that `get` fetches them to.
    std::int64_t bytes() const { return state_->store.bytes(); }

    StateStatistics statistics() const {
        const SlotTable& slots = ledger().slots();
        return {slots.slots(), slots.slots() - slots.free(), slots.checkpoints(), bytes()};
    }

private:
    // A hybrid does each verb in halves, as it does a cache's.
    template <class, class...>
    friend class Hybrid;

    Result<void> prepare_begin(const Batch& batch) {
        state_->expect_no_pass("begin");
        return state_->book.prepare_begin(batch);
    }
    RecurrentPass<State> open(const Batch& batch) {
        state_->book.open();
        RecurrentPass<State> pass{*state_, batch.tokens(), false};
        if (const auto starts = state_->book.starts(); !starts.empty()) state_->store.zero(state_->backend, starts);
        return pass;
    }

    Result<void> prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        state_->expect_no_pass("copy_prefix");
        return state_->book.ledger().prepare_copy_prefix(from, to, length);
    }
    void finish_copy_prefix(Sequence from, Sequence to, std::int32_t length) noexcept {
        state_->book.ledger().finish_copy_prefix(from, to, length);
    }

    Result<void> prepare_remove(Sequence s, Position begin, Position end) {
        state_->expect_no_pass("remove");
        state_->removal = {s, begin, end};
        return state_->book.ledger().prepare_remove(s, begin, end);
    }
    void finish_remove() noexcept {
        const auto& [s, begin, end] = state_->removal;
        state_->book.ledger().finish_remove(s, begin, end);
    }

    std::unique_ptr<State> state_;
};

} // namespace cellar
