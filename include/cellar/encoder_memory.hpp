// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/limits.hpp>
#include <cellar/cache.hpp>
#include <cellar/encoder_pass.hpp>
#include <cellar/fwd.hpp>
#include <cellar/shift/no_shift.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cellar {

/// What an encoder made of one input (an image, a recording): so many tokens, all at the position of the sequence from
/// which on its tokens see them.
struct EncoderInput {
    Sequence sequence{};
    Position position{};
    std::int32_t tokens = 0;
};

/// The keys and values that cross attention reads: written once for an input, and seen by every token of its sequence
/// from the input's position on. Inputs add up, as images in a conversation do; `remove` takes them away.
///
/// `Limits`: the capacity counts tokens of inputs; a batch is what one pass writes, or the decoder's tokens that read.
///
/// All memory for keys and values is taken by the constructor and stays where it is. Every verb either does all it
/// says or refuses and leaves everything as it was. Movable, not copyable; one thread at a time.
template <layout_policy Layout, backend Backend>
class EncoderMemory {
    using Cells = Cache<Layout, FullCausal, NoShift, Backend>;
    using State = detail::CacheState<Layout, FullCausal, NoShift, Backend>;

public:
    /// Throws `std::bad_alloc` if the memory cannot be had.
    EncoderMemory(Shape shape, const Limits& limits, Backend backend = Backend{})
        : cells_{std::move(shape), limits, FullCausal{}, NoShift{}, std::move(backend)} {
        positions_.reserve(static_cast<std::size_t>(limits.batch));
        sequences_.reserve(static_cast<std::size_t>(limits.batch));
    }

    /// Opens a pass to put the keys and values of one input's tokens. Refuses with `full` or `batch_too_long`.
    Result<Pass<State>> write(Sequence s, Position p, std::int32_t tokens) {
        const EncoderInput input{s, p, tokens};
        return write({&input, 1});
    }

    /// The same for several inputs, one behind the other.
    Result<Pass<State>> write(std::span<const EncoderInput> inputs) {
        std::int64_t tokens = 0;
        for (const EncoderInput& input : inputs) {
            CELLAR_EXPECTS(input.tokens >= 0, "write: an input of ", input.tokens, " tokens, expected 0 or more");
            tokens += input.tokens;
        }
        if (tokens > limits().batch) return Refusal::batch_too_long;
        positions_.clear();
        sequences_.clear();
        for (const EncoderInput& input : inputs) {
            positions_.insert(positions_.end(), static_cast<std::size_t>(input.tokens), input.position);
            sequences_.insert(sequences_.end(), static_cast<std::size_t>(input.tokens), input.sequence);
        }
        return cells_.begin({positions_, sequences_});
    }

    /// Opens a pass that reads what the batch of a decoder sees. Refuses with `batch_too_long`. That a token sees later
    /// tokens (`Batch::bidirectional`) does not let it see later inputs.
    Result<EncoderPass<State>> begin(const Batch& batch) {
        if (const Result<void> prepared = prepare_begin(batch); !prepared) return prepared.error();
        return open(batch);
    }

    /// A pass of `tokens` tokens that sees all cells, for sizing buffers and capturing graphs; see `Cache::reserve`.
    EncoderPass<State> reserve(std::int32_t tokens) {
        cells_.reserve(tokens).drop();
        return EncoderPass<State>{state(), tokens, {0, cells()}, true};
    }

    /// `to` shares the inputs of `from` at positions below `length` in place of its own; no data moves.
    Done copy_prefix(Sequence from, Sequence to, std::int32_t length) { return cells_.copy_prefix(from, to, length); }

    /// True: inputs are never forgotten, so a query at p finds all that it may see.
    bool can_resume(Sequence s, Position p) const { return resumable_prefix(s, p) == p; }

    /// p itself.
    Position resumable_prefix(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "resume: position ", p, ", expected 0 or more");
        ledger().record(s); // checked
        return p;
    }

    /// Drops the inputs at positions [begin, end) of s; later ones move down by end - begin, as their tokens do. Their
    /// keys carry no position, so nothing is turned, and nothing can be refused.
    Result<void> remove(Sequence s, Position begin, Position end) {
        if (const Result<void> prepared = prepare_remove(s, begin, end); !prepared) return prepared;
        finish_remove();
        return {};
    }

    /// As `Cache::defragment` does.
    void defragment() { cells_.defragment(); }

    /// Blocks until all that was enqueued is done.
    void fence() { cells_.fence(); }

    /// The tokens of all inputs of s.
    std::int32_t tokens(Sequence s) const { return cells_.tokens(s); }

    const Shape& shape() const { return cells_.shape(); }
    const Limits& limits() const { return cells_.limits(); }
    const Backend& backend() const { return cells_.backend(); }
    const Ledger& ledger() const { return cells_.ledger(); }
    Cell cells() const { return cells_.cells(); }
    std::int64_t bytes() const { return cells_.bytes(); }
    Statistics statistics() const { return cells_.statistics(); }

private:
    // A hybrid does each verb in halves, as it does a cache's.
    template <class, class...>
    friend class Hybrid;

    State& state() { return *cells_.state_; }

    static Batch without_flags(const Batch& batch) { return {batch.positions, batch.sequences}; }

    Result<void> prepare_begin(const Batch& batch) {
        state().expect_no_pass("begin");
        return state().book.prepare_look(without_flags(batch));
    }
    EncoderPass<State> open(const Batch& batch) noexcept {
        state().book.look(without_flags(batch));
        return EncoderPass<State>{state(), batch.tokens(), state().book.pass().history, false};
    }

    Result<void> prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        return cells_.prepare_copy_prefix(from, to, length);
    }
    void finish_copy_prefix(Sequence from, Sequence to, std::int32_t length) noexcept {
        cells_.finish_copy_prefix(from, to, length);
    }

    Result<void> prepare_remove(Sequence s, Position begin, Position end) {
        state().expect_no_pass("remove");
        return state().book.ledger().prepare_remove(s, begin, end, MovedKeys::kept, state().removal);
    }
    void finish_remove() noexcept { cells_.finish_remove(); }

    Cells cells_;
    std::vector<Position> positions_; // of the inputs that are written
    std::vector<Sequence> sequences_;
};

} // namespace cellar
