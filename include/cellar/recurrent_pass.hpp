// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/fwd.hpp>
#include <cellar/recurrent/parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar {

/// One forward pass over a batch, part by part: for each layer and part, states are fetched, changed and put back, then
/// the pass is committed. A pass that is destroyed without `commit` never happened. One pass at a time may be open; it
/// must not outlive its memory.
///
/// In every layer the parts come in ascending order, since a sequence's later parts go on from its earlier ones; layers
/// may come in any order. Anything else is a violation, and so is a `commit` before all parts of all layers were put:
/// what another sequence left in a slot would become somebody's state.
template <class State>
class [[nodiscard]] RecurrentPass {
    using Store = typename State::Store;

public:
    RecurrentPass(RecurrentPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)},
          tokens_{other.tokens_},
          reserved_{other.reserved_},
          layer_{other.layer_},
          part_{other.part_},
          done_{other.done_} {}
    RecurrentPass& operator=(RecurrentPass&&) = delete;
    ~RecurrentPass() { drop(); }

    std::int32_t tokens() const { return tokens_; }

    /// What the batch is split into. Without states to keep within, and with equally many tokens of all sequences, one
    /// part.
    std::span<const Part> parts() const { return state().book.parts(); }

    /// One tensor of the part's states, [part.sequences(), extents...], contiguous memory of the backend, to be changed
    /// in place. The first call for a layer and part enqueues one copy of all its tensors; what it returns is valid
    /// until the next one for another.
    template <class Tag>
    auto get(int layer, const Part& part) {
        expect_next("get", layer, part);
        if (layer_ != layer || part_ != part.index()) {
            layer_ = layer;
            part_ = part.index();
            state().store.fetch(state().backend, layer, part.fetches());
        }
        return state().store.template gathered<Tag>(state().shape, layer, part.sequences());
    }

    /// Enqueues one copy of all tensors that `get` returned, as they are now, to where they belong.
    void put(int layer, const Part& part) {
        expect_next("put", layer, part);
        CELLAR_EXPECTS(layer_ == layer && part_ == part.index(), "put: part ", part.index(), " of layer ", layer,
                       ", expected what `get` was last called for: part ", part_, " of layer ", layer_);
        state().store.store(state().backend, layer, part.stores());
        finish(layer);
    }

    /// One tensor of all slots in place, [slots, extents...]: a kernel that takes indices reads `part.sources()` and
    /// writes `part.targets()`, and nothing else. What was never written holds anything.
    template <class Tag>
    auto slots(int layer) {
        expect_layer(layer);
        return state().store.template in_slots<Tag>(state().shape, layer);
    }

    /// In place of `put`: all tensors of the part's targets are written in place, or enqueued to be.
    void written(int layer, const Part& part) {
        expect_next("written", layer, part);
        finish(layer);
    }

    /// Calls f(*this, layer): what works for a hybrid works for its members too.
    template <class F>
    decltype(auto) visit(int layer, F&& f) {
        expect_layer(layer);
        return std::forward<F>(f)(*this, layer);
    }

    /// The batch's tokens belong to the states of their sequences from now on. A reserved pass stores nothing.
    void commit() {
        expect_complete();
        finish();
    }

    /// Ends the pass as if it had never begun, which the destructor does too.
    void drop() noexcept {
        if (state_ == nullptr) return;
        state_->book.drop();
        close();
    }

private:
    template <class, backend>
    friend class RecurrentState;
    template <class, class...>
    friend class HybridPass;

    RecurrentPass(State& state, std::int32_t tokens, bool reserved)
        : state_{&state}, tokens_{tokens}, reserved_{reserved} {
        state.pass_open = true;
        std::fill(state.parts_done.begin(), state.parts_done.end(), 0);
    }

    State& state() const {
        CELLAR_EXPECTS(state_ != nullptr, "the pass is over, expected one that was neither committed nor dropped");
        return *state_;
    }

    // Committing in two halves, as a cache's pass does.
    void expect_complete() const {
        const auto expected = std::int64_t{state().shape.layers()} * static_cast<std::int64_t>(parts().size());
        CELLAR_EXPECTS(reserved_ || done_ == expected, "commit: ", done_, " parts were put in all layers, expected ",
                       expected);
    }
    void finish() noexcept {
        if (reserved_) return drop();
        state_->book.commit();
        close();
    }

    void close() noexcept {
        state_->pass_open = false;
        state_ = nullptr;
    }

    void expect_layer(int layer) const {
        CELLAR_EXPECTS(layer >= 0 && layer < state().shape.layers(), "layer ", layer, ", expected 0 to ",
                       state().shape.layers() - 1);
    }

    void expect_next(const char* verb, int layer, const Part& part) const {
        expect_layer(layer);
        const std::int32_t next = state().parts_done[static_cast<std::size_t>(layer)];
        CELLAR_EXPECTS(next < std::ssize(parts()) && part == parts()[static_cast<std::size_t>(next)], verb, ": part ",
                       part.index(), " of layer ", layer, ", expected part ", next, " of ", parts().size(),
                       ", in ascending order and each once");
    }

    void finish(int layer) {
        ++state().parts_done[static_cast<std::size_t>(layer)];
        ++done_;
        part_ = -1;
    }

    State* state_;
    std::int32_t tokens_;
    bool reserved_;
    int layer_ = -1; // what was fetched last
    std::int32_t part_ = -1;
    std::int64_t done_ = 0; // parts put, in all layers
};

} // namespace cellar
