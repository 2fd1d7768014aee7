// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/recurrent/detail/memory_state.hpp>
#include <cellar/recurrent/detail/state_snapshots.hpp>
#include <cellar/recurrent/fwd.hpp>
#include <cellar/recurrent/kept_state.hpp>
#include <cellar/recurrent/recurrent_pass.hpp>
#include <cellar/recurrent/state_limits.hpp>
#include <cellar/recurrent/state_shape.hpp>
#include <cellar/recurrent/state_snapshot.hpp>

#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace cellar {

/// How full a recurrent memory is.
struct StateStatistics {
    Slot slots = 0;       ///< all slots, free or not
    Slot used = 0;        ///< slots that a sequence keeps or the open pass writes
    Slot checkpoints = 0; ///< slots kept as checkpoints; a shared one counts once
    std::int64_t bytes = 0;
    std::int32_t snapshots = 0;       ///< snapshots that own slots in place
    std::int32_t offloaded = 0;       ///< snapshots that are offloaded
    std::int64_t offloaded_bytes = 0; ///< of these, outside the slots

    bool operator==(const StateStatistics&) const = default;
};

/// The states of a model's recurrent layers (convolution tails, state matrices, ...), for any number of sequences.
///
/// - `States<Tags...>`: the tensors of a layer's state, each named by a tag that derives from `StateTensor`.
/// - `Backend`: where the memory is and who works on it.
///
/// A slot holds one sequence's state. A slot is never overwritten while a sequence, a checkpoint or the rollback needs
/// it, so dropping a pass, going back and sharing a prefix copy nothing. The constructor allocates all memory for
/// states; its addresses never change. Every operation does all it says, or refuses and leaves the memory as it was.
/// Movable, not copyable. One thread may use it at a time.
template <class States, BackendPolicy Backend>
class RecurrentMemory {
    static_assert(!HoldsNoData<Backend>,
                  "RecurrentMemory: NoData has no memory for states, expected a backend that has");
    using State = detail::RecurrentMemoryState<States, Backend>;
    using Pass = RecurrentPass<RecurrentMemory>;

public:
    using states_type = States;
    using backend_type = Backend;
    using pass_type = Pass;

    /// Throws `std::bad_alloc` if there is not enough memory.
    RecurrentMemory(StateShape shape, const StateLimits& limits, Backend backend = Backend{},
                    Where where = Where::current())
        : state_{make_state(where, std::move(shape), limits, std::move(backend))} {}

    /// What a memory takes that is made with these arguments, before `set_initial`: exactly, and before anything is
    /// allocated, as `Cache::bytes_for`. Later, operations add what they keep: snapshots and schedules.
    static constexpr MemoryBytes bytes_for(const StateShape& shape, const StateLimits& limits) {
        return State::bytes_for(shape, limits);
    }

    /// Bytes of one slot: one sequence's state in all layers, with rows padded to multiples of 16.
    static constexpr std::int64_t bytes_per_sequence(const StateShape& shape) {
        return State::Store::slot_bytes(shape);
    }

    /// Opens a pass. Every sequence of the batch gets a free slot for each state it will keep; a new sequence starts
    /// from zeros, or what `set_initial` said (enqueued). Refuses with `batch_too_long`; with `not_next` if the
    /// positions of a sequence do not continue from its state in ascending order without gaps (equal positions are
    /// allowed within a batch, not across batches); with `cannot_branch` if the batch is a tree of more than one branch
    /// (`Batch::parents`); and, under `Unequal::refuse`, with `unequal_batch`. Throws `std::bad_alloc`, with nothing
    /// changed. O(tokens + layers), amortised.
    Result<Pass> begin(const Batch& batch, Where where = Where::current()) {
        return detail::perform(*this, op::Begin{batch}, where);
    }
    /// The same for the next `count` tokens of s, at next(s).
    Result<Pass> begin(Sequence s, std::int32_t count, Where where = Where::current()) {
        const detail::Caller caller{where};
        const Position first = next(s);
        if (count > limits().batch) return detail::batch_too_long(count, limits().batch);
        return begin(detail::next_tokens(state().next_tokens, s, first, count));
    }

    /// A pass of `tokens` tokens, spread over all sequences, for sizing buffers and capturing graphs. It reads and
    /// writes free slots, and stores nothing.
    Pass reserve(std::int32_t tokens, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("reserve");
        CELLAR_EXPECTS(tokens >= 0 && tokens <= limits().batch, "reserve: ", tokens, " tokens, expected 0 to ",
                       limits().batch);
        state().book.reserve(tokens);
        return Pass{state(), tokens, true};
    }

    /// `to` gives up its own states and shares those that `from` keeps up to position `end`. No data moves. Nothing
    /// happens if both are the same sequence. Refuses with `cannot_rewind` if `from` goes on beyond `end` and keeps
    /// no state there. O(states kept).
    Result<void> copy_prefix(Sequence from, Sequence to, Position end, Where where = Where::current()) {
        return detail::perform(*this, op::CopyPrefix{from, to, end}, where);
    }

    /// True if a state is kept that has seen exactly the tokens below p; always true for 0.
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return table().can_resume(s, p);
    }

    /// The largest q <= p with can_resume(s, q). O(log states kept).
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return table().resumable_prefix(s, p);
    }

    /// Removes positions [begin, end) of s. An empty range, or one after the last token, changes nothing. If the range
    /// reaches the last token, s goes back to `begin`; refuses with `cannot_rewind` if no state is kept there
    /// (`resumable_prefix` says where one is). Otherwise refuses with `cannot_cut`: a state cannot lose its first
    /// tokens or tokens from its middle. O(states kept).
    Result<void> remove(Sequence s, Position begin, Position end, Where where = Where::current()) {
        return detail::perform(*this, op::Remove{s, begin, end}, where);
    }

    /// The state of s after the tokens below `to`, to be kept whatever happens to s: the snapshot shares its slot. No
    /// data moves. `to_end`: the current state. Any `from` up to `to`: a state is that of all tokens before it. Refuses
    /// with `cannot_rewind` if no state is kept at `to` (`schedule` keeps one ahead of time), and with
    /// `too_many_snapshots` if there are `StateLimits::snapshots` in place already. Throws `std::bad_alloc`, with
    /// nothing changed. O(log states kept); allocates.
    Result<StateSnapshot> snapshot(Sequence s, Position from = Position{0}, Position to = to_end,
                                   Where where = Where::current()) {
        return detail::perform(*this, op::Snapshot{s, from, to}, where);
    }

    /// s gives up its states, and shares that of the snapshot: its next token has position `to`. No data moves. Refuses
    /// with `cannot_rewind` if `to` is not the end of the snapshot. A snapshot that is offloaded stays so: its state is
    /// copied to a slot that s alone owns (enqueued; see `offload`). Throws `std::bad_alloc`, with nothing changed.
    /// O(states given up), and O(layers) for the copy.
    Result<void> restore(Sequence s, const StateSnapshot& snapshot, Position to, Where where = Where::current()) {
        return detail::perform(*this, op::Restore<StateSnapshot>{s, snapshot, to}, where);
    }
    Result<void> restore(Sequence s, const StateSnapshot& snapshot, Where where = Where::current()) {
        return restore(s, snapshot, snapshot.to(where), where);
    }

    /// The way back: s goes on at position `to`. Refuses with `cannot_rewind` if no state is kept there.
    /// O(states kept).
    Result<void> rewind(Sequence s, Position to, Where where = Where::current()) {
        return detail::perform(*this, op::Rewind{s, to}, where);
    }

    /// `child`, which does not end before `parent`, takes the place of `parent`, and is then as if moved from. It stays
    /// in place or offloaded, as it is. Never refuses. O(1); blocks if the parent is offloaded.
    Result<void> merge(StateSnapshot& parent, StateSnapshot&& child, Where where = Where::current()) {
        return detail::perform(*this, op::Merge<StateSnapshot>{parent, child}, where);
    }

    /// Moves what the snapshot owns out of its slot, which it gives up, to memory of its own. Throws `std::bad_alloc`,
    /// with nothing changed, if there is no memory for it. Does nothing if the snapshot is offloaded already. Enqueues;
    /// blocks if the data goes to memory of the host that the backend's work cannot reach. O(layers); the state is
    /// copied once, by way of a buffer if it blocks.
    void offload(StateSnapshot& snapshot, OffloadTo to = OffloadTo::host, Where where = Where::current()) {
        detail::perform(*this, op::Offload<StateSnapshot>{snapshot, to}, where).value();
    }

    /// Brings a snapshot that is offloaded back into a slot, which any number of sequences may share. Does nothing if
    /// it is in place already. Blocks. Refuses with `too_many_snapshots` if `StateLimits::snapshots` are in place.
    /// Throws `std::bad_alloc`, with nothing changed. Costs as much as `offload`.
    Result<void> reload(StateSnapshot& snapshot, Where where = Where::current()) {
        return detail::perform(*this, op::Reload<StateSnapshot>{snapshot}, where);
    }

    /// Always refuses, with `cannot_split`: a state is that of all tokens before it.
    Result<StateSnapshot> split(StateSnapshot& snapshot, Position at, Where where = Where::current()) {
        return detail::perform(*this, op::Split<StateSnapshot>{snapshot, at}, where);
    }

    /// Keeps the current state of s as a checkpoint. When there are more than `StateLimits::checkpoints`, the policy
    /// says which one is dropped. Refuses with `no_checkpoints` if the limits allow none. Does nothing if s is empty.
    /// O(1), or O(sequences + states kept of all) if one is dropped.
    Result<void> checkpoint(Sequence s, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("checkpoint");
        return state().book.table().checkpoint(s);
    }

    /// Asks for a checkpoint ahead of time: the pass that brings s to position p keeps its state there, which splits
    /// the batch there. Refuses with `already_passed` if p is not greater than `next(s)`, and with `no_checkpoints` if
    /// the limits allow none. The schedule ends if s becomes empty, a copy of another sequence, or is restored from a
    /// snapshot. O(schedules of s). Throws `std::bad_alloc`, with nothing changed.
    Result<void> schedule(Sequence s, Position p, Where where = Where::current()) {
        return detail::perform(*this, op::Schedule{s, p}, where);
    }
    /// Ends a schedule before it is used. Does nothing if there is none for s at p, or s has reached p. O(schedules of
    /// s).
    void unschedule(Sequence s, Position p, Where where = Where::current()) {
        detail::perform(*this, op::Unschedule{s, p}, where).value();
    }

    /// Sequences that have no state yet start from these values, instead of zeros, in one tensor of a layer:
    /// [extents...], contiguous host memory. Blocks. The first call allocates memory for all tensors and layers, of
    /// `bytes_per_sequence` at most.
    template <class Tag>
    void set_initial(int layer, std::span<const typename Tag::element_type> values, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("set_initial");
        state().expect_layer("set_initial", layer);
        state().stores.template set_initial<Tag>(state().backend, shape(), layer, values);
        state().book.set_start_source(state().stores.start_source());
    }

    /// The position of the next token of s: 0 if it has none.
    Position next(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return table().states(s).next();
    }

    /// All states that s keeps, in ascending order; the last is its current one. Valid until the next operation that is
    /// not const.
    std::span<const KeptState> kept(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return table().states(s).all();
    }

    /// The current state of s. Asking for that of an empty sequence is a violation.
    StateHandle state(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(!kept(s).empty(), "state: sequence ", s, " has no state, expected one with tokens");
        return state(s, next(s));
    }
    /// The state of s after all tokens below position p, `next` of one of `kept(s)`. Any other p is a violation.
    /// O(log n) for n kept states.
    StateHandle state(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(table().states(s).keeps(p), "state: sequence ", s, " at position ", p,
                       ", expected one of the positions of kept(s)");
        const Slot slot = table().states(s).slot_at(p);
        return {slot, table().slots().generation(slot)};
    }

    /// One tensor of a state, in place, [extents...]. Using a handle whose state is gone is a violation, even if its
    /// slot holds another state by now.
    template <class Tag>
    auto view(int layer, StateHandle handle, Where where = Where::current()) const {
        const detail::Caller caller{where};
        state().expect_layer("view", layer);
        CELLAR_EXPECTS(table().slots().is_current(handle), "view: generation ", handle.generation,
                       " of the state in slot ", handle.slot, " is not kept, expected a handle to a kept state");
        const auto all = state_->stores.template in_slots<Tag>(shape(), layer);
        StridedView<const typename Tag::element_type, Tag::rank> view;
        view.pointer = all.pointer + handle.slot * all.stride(0);
        for (int r = 0; r < Tag::rank; ++r) {
            view.extents[r] = all.extents[r + 1];
            view.strides[r] = all.strides[r + 1];
        }
        return view;
    }

    /// Blocks until all enqueued work is done.
    void fence(Where where = Where::current()) { state(where).backend.fence(); }

    /// The shape of the state of one sequence.
    const StateShape& shape(Where where = Where::current()) const { return state(where).shape; }
    /// The limits, with `batch` filled in.
    const StateLimits& limits(Where where = Where::current()) const { return state(where).book.limits(); }
    /// The backend: where data lies, and what works on it.
    const Backend& backend(Where where = Where::current()) const { return state(where).backend; }

    int layers(Where where = Where::current()) const { return shape(where).layers(); }
    std::int32_t sequences(Where where = Where::current()) const { return limits(where).sequences; }

    /// How many more snapshots can be in place: slots for snapshots that are free. (`begin` never lacks a slot.) O(1).
    std::int32_t free_snapshots(Where where = Where::current()) const {
        return limits(where).snapshots - static_cast<std::int32_t>(std::ssize(table(where).snapshots().in_place()));
    }

    /// All slots, free or not.
    Slot slots(Where where = Where::current()) const { return table(where).slots().slots(); }

    /// Bytes of the states in all slots and layers, and of the rows that `get` gathers.
    std::int64_t bytes(Where where = Where::current()) const { return state(where).stores.bytes(); }

    /// Slots, checkpoints and snapshots, counted now. O(snapshots that are offloaded).
    StateStatistics statistics(Where where = Where::current()) const {
        const detail::SlotTable& slots = table(where).slots();
        StateStatistics found{slots.slots(), slots.slots() - slots.free(), slots.checkpoints(), bytes()};
        found.snapshots = static_cast<std::int32_t>(table().snapshots().in_place().size());
        for (const detail::KeptSlot* kept : table().snapshots().offloaded()) {
            ++found.offloaded;
            found.offloaded_bytes += kept->data->bytes();
        }
        return found;
    }

    /// The two phases of these operations; see `Performs`.
    Attempt<op::Begin> prepare(const op::Begin& begin) {
        state().expect_no_pass("begin");
        return {begin, state().book.prepare_open(begin.batch)};
    }
    // A backend may throw while it fills slots.
    Pass finish(op::Begin&& begin) {
        state().book.open();
        Pass pass{state(), begin.batch.tokens(), false};
        if (const auto starts = state().book.starts(); !starts.empty()) state().stores.start(state().backend, starts);
        return pass;
    }
    Attempt<op::CopyPrefix> prepare(const op::CopyPrefix& copy) {
        state().expect_no_pass("copy_prefix");
        return {copy, state().book.table().prepare_copy_prefix(copy.from, copy.to, copy.end)};
    }
    void finish(op::CopyPrefix&& copy) noexcept {
        state().book.table().finish_copy_prefix(copy.from, copy.to, copy.end);
    }
    Attempt<op::Remove> prepare(const op::Remove& remove) {
        state().expect_no_pass("remove");
        const Result<void> can = table().prepare_remove(remove.sequence, remove.begin, remove.end);
        if (!can) return can.error();
        return {remove, false};
    }
    Attempt<op::Remove> prepare(const op::Rewind& rewind) {
        state().expect_no_pass("rewind");
        CELLAR_EXPECTS(rewind.to.value >= 0, "rewind: position ", rewind.to, ", expected 0 or more");
        if (!table().can_resume(rewind.sequence, rewind.to)) return table().cannot_rewind(rewind.sequence, rewind.to);
        return prepare(op::Remove{rewind.sequence, rewind.to, to_end});
    }
    void finish(op::Remove&& remove) noexcept {
        state().book.table().finish_remove(remove.sequence, remove.begin, remove.end);
    }
    auto prepare(const op::Snapshot& snapshot) { return snapshots().prepare(snapshot); }
    auto prepare(const op::Schedule& schedule) { return snapshots().prepare(schedule); }
    auto prepare(const op::Unschedule& schedule) { return snapshots().prepare(schedule); }
    template <template <class> class Operation>
    auto prepare(const Operation<StateSnapshot>& operation) {
        return snapshots().prepare(operation);
    }
    template <class Prepared>
    auto finish(Prepared&& prepared) noexcept {
        return snapshots().finish(std::forward<Prepared>(prepared));
    }

    /// For prefix trees, files and transfers; see `Cache`.
    std::int64_t occupied_bytes(const StateSnapshot& snapshot) const {
        return snapshot.is_offloaded() ? snapshot.bytes() : bytes_per_sequence(shape());
    }
    /// For files and transfers.
    void save(const StateSnapshot& snapshot, const std::string& prefix, detail::StoredSnapshot& stored) {
        snapshots().save(snapshot, prefix, stored);
    }
    /// The same of what s will have at position `to`.
    void save_ahead(Sequence s, Position to, const std::string& prefix, detail::StoredSnapshot& stored) {
        snapshots().save_ahead(s, to, prefix, stored);
    }
    auto prepare(const detail::Load& load) { return snapshots().prepare(load); }

private:
    friend struct MemoryAccess;

    template <class... Parts>
    static std::unique_ptr<State> make_state(Where where, Parts&&... parts) {
        const detail::Caller caller{where};
        return std::make_unique<State>(std::forward<Parts>(parts)...);
    }

    State& state(Where where = Where::current()) { return const_cast<State&>(std::as_const(*this).state(where)); }
    const State& state(Where where = Where::current()) const {
        return detail::expect_not_moved(state_, "memory", where);
    }
    detail::StateSnapshots<State> snapshots() { return detail::StateSnapshots<State>{state()}; }
    const detail::StateTable& table(Where where = Where::current()) const { return state(where).book.table(); }

    std::unique_ptr<State> state_;
};

} // namespace cellar
