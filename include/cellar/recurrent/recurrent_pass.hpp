// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/memory/layer_name.hpp>
#include <cellar/recurrent/detail/memory_state.hpp>
#include <cellar/recurrent/micro_batch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar {

/// One forward pass over a batch, in micro-batches: for each layer and micro-batch, get the states, change them, put
/// them back; then commit. A pass that is destroyed without `commit` is dropped: the memory is as if it had never
/// begun. One pass may be open at a time; it must not outlive its memory.
///
/// Within a layer, micro-batches come in ascending order, because a sequence's later ones continue from its earlier
/// ones. Layers may come in any order. Anything else is a violation, and so is a `commit` before all micro-batches of
/// all layers were put: what another sequence left in a slot would become this sequence's state.
template <class Memory>
class [[nodiscard]] RecurrentPass {
    using State = typename detail::RecurrentStateOf<Memory>::type;

public:
    using memory_type = Memory;

    RecurrentPass(RecurrentPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)}, tokens_{other.tokens_} {}
    RecurrentPass& operator=(RecurrentPass&&) = delete;
    ~RecurrentPass() { drop(); }

    std::int32_t tokens() const { return tokens_; }

    /// The micro-batches that the batch is split into. One, if all sequences have the same number of tokens and no
    /// state within the batch is kept.
    std::span<const MicroBatch> micro_batches(Where where = Where::current()) const& {
        const detail::Caller caller{where};
        return state().book.micro_batches();
    }

    /// One tensor of the micro-batch's states, [micro_batch.sequences(), extents...], contiguous memory of the backend,
    /// to be changed in place. The first call for a layer and micro-batch enqueues one copy of all its tensors. The
    /// view is valid until the first call for another layer or micro-batch.
    template <class Tag>
    auto get(int layer, const MicroBatch& micro_batch, Where where = Where::current()) & {
        const detail::Caller caller{where};
        expect_next("get", layer, micro_batch);
        State& s = state();
        if (s.fetched_layer != layer || s.fetched_micro_batch != micro_batch.index()) {
            s.fetched_micro_batch = -1; // if the backend throws
            s.stores.fetch(s.backend, layer, micro_batch.fetches());
            s.fetched_layer = layer;
            s.fetched_micro_batch = micro_batch.index();
        }
        return s.stores.template gathered<Tag>(s.shape, layer, micro_batch.sequences());
    }

    /// Enqueues one copy of all tensors that `get` returned, as they are now, to the targets.
    void put(int layer, const MicroBatch& micro_batch, Where where = Where::current()) & {
        const detail::Caller caller{where};
        expect_next("put", layer, micro_batch);
        State& s = state();
        CELLAR_EXPECTS(s.fetched_micro_batch >= 0, "put: micro-batch ", micro_batch.index(), " of ", name()(layer),
                       ", expected a `get` of it first");
        CELLAR_EXPECTS(s.fetched_layer == layer && s.fetched_micro_batch == micro_batch.index(), "put: micro-batch ",
                       micro_batch.index(), " of ", name()(layer),
                       ", expected what `get` was last called for: micro-batch ", s.fetched_micro_batch, " of layer ",
                       s.fetched_layer);
        s.stores.store(s.backend, layer, micro_batch.stores());
        finish(layer);
    }

    /// One tensor of all slots, in place, [slots, extents...], for kernels that take indices. They read
    /// `micro_batch.sources()` and write `micro_batch.targets()`, and nothing else: other slots belong to other states.
    template <class Tag>
    auto slots(int layer, Where where = Where::current()) & {
        const detail::Caller caller{where};
        state().expect_layer("slots", layer);
        return state().stores.template in_slots<Tag>(state().shape, layer);
    }

    /// Replaces `put` where states were written in place: all tensors of all targets are written, or enqueued to be.
    void mark_written(int layer, const MicroBatch& micro_batch, Where where = Where::current()) & {
        const detail::Caller caller{where};
        expect_next("mark_written", layer, micro_batch);
        finish(layer);
    }

    /// Calls f(*this, layer), so that code for a hybrid's passes also works here.
    template <class F>
    decltype(auto) visit(int layer, F&& f, Where where = Where::current()) & {
        {
            const detail::Caller caller{where};
            state().expect_layer("visit", layer);
        }
        return std::forward<F>(f)(*this, layer);
    }

    // A pass that is a temporary is dropped at the end of the line.
    void micro_batches() const&& = delete;
    template <class Tag>
    void get(int, const MicroBatch&) && = delete;
    template <class Tag>
    void slots(int) && = delete;

    /// Makes the new states those of their sequences. A layer with a micro-batch that was not put is a violation. A
    /// reserved pass stores nothing.
    void commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::expect_own_pass(name(), "commit");
        expect_complete();
        finish_commit();
    }

    /// Undoes the pass, as the destructor does.
    void drop() noexcept {
        if (state_ == nullptr) return;
        state_->book.drop();
        close();
    }

    /// The two phases of `commit`: see `TwoPhaseMemory`.
    void expect_complete() const {
        const int missing = first_missing();
        CELLAR_EXPECTS(missing < 0, "commit: ", state().done_in_layer[static_cast<std::size_t>(missing)],
                       " micro-batches of ", name()(missing), " were put, expected ", micro_batches().size());
    }
    void finish_commit() noexcept {
        if (state_->pass_reserved) return drop();
        state_->book.commit();
        close();
    }

    /// For cellar itself: how messages name a layer.
    detail::LayerName& name() const { return state().layer_name; }

    /// For cellar itself: the first layer that misses a micro-batch, or -1.
    int first_missing() const {
        const State& s = state();
        const auto& done = s.done_in_layer;
        const auto expected = std::ssize(s.book.micro_batches());
        if (s.pass_reserved || s.done == std::int64_t{s.shape.layers()} * expected) return -1;
        const auto missing = std::find_if(done.begin(), done.end(), [=](std::int32_t n) { return n != expected; });
        return static_cast<int>(missing - done.begin());
    }
    RecurrentPass(State& state, std::int32_t tokens, bool reserved) : state_{&state}, tokens_{tokens} {
        state.begin_pass(reserved);
    }

private:
    State& state() const { return detail::expect_open(state_); }

    void close() noexcept {
        state_->pass_open = false;
        state_ = nullptr;
    }

    void expect_next(const char* operation, int layer, const MicroBatch& micro_batch) const {
        state().expect_layer(operation, layer);
        const std::int32_t next = state().done_in_layer[static_cast<std::size_t>(layer)];
        CELLAR_EXPECTS(next < std::ssize(micro_batches()) && micro_batch.index() == next, operation, ": micro-batch ",
                       micro_batch.index(), " of ", name()(layer), ", expected ", next, " of ", micro_batches().size(),
                       ", in ascending order and each once");
        CELLAR_EXPECTS(micro_batch == micro_batches()[static_cast<std::size_t>(next)], operation, ": micro-batch ",
                       next, " of ", name()(layer), " is not of this pass, expected one of its micro_batches()");
    }

    void finish(int layer) {
        State& s = state();
        ++s.done_in_layer[static_cast<std::size_t>(layer)];
        ++s.done;
        s.fetched_micro_batch = -1;
    }

    State* state_;
    std::int32_t tokens_;
};

} // namespace cellar
