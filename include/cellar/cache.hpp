// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/ledger.hpp>
#include <cellar/book/limits.hpp>
#include <cellar/cache_state.hpp>
#include <cellar/fwd.hpp>
#include <cellar/pass.hpp>
#include <cellar/shift/no_shift.hpp>
#include <cellar/statistics.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace cellar {

/// The keys and values that the attention layers of a model remember, for any number of sequences.
///
/// - `Layout`: order and element types (`StandardV<half>`, `PermutedV<bf16>`, ...).
/// - `Window`: what a token may see (`FullCausal`, `SlidingWindow<4096>`, `ChunkedAttention<8192>`).
/// - `ShiftPolicy`: what moving a position does to a key (`NoShift`, `FreeShift`, `RopeShift<Neox>`).
/// - `Backend`: where memory is and who works on it (`HostBackend`, `EigenBackend`, `KokkosBackend<>`).
///
/// All memory for keys and values is taken by the constructor and stays where it is. Every verb either does all it
/// says or refuses and leaves everything as it was. Movable, not copyable; one thread at a time.
template <layout_policy Layout, window_policy Window, shift_policy ShiftPolicy, backend Backend>
class Cache {
    using State = detail::CacheState<Layout, Window, ShiftPolicy, Backend>;

public:
    /// Throws `std::bad_alloc` if the memory cannot be had.
    Cache(Shape shape, const Limits& limits, const Window& window = Window{}, ShiftPolicy shift = ShiftPolicy{},
          Backend backend = Backend{})
        : state_{std::make_unique<State>(std::move(shape), limits, window, std::move(shift), std::move(backend))} {}

    /// Opens a pass: gives a cell to every token. Refuses with `full` or `batch_too_long`. O(tokens * log cells):
    /// nothing is scanned, however large the cache; a token in front of others of its sequence also moves their runs.
    /// With `Placement::contiguous` and no gap that is long enough, after a `defragment`.
    Result<Pass<State>> begin(const Batch& batch) {
        if (const Result<void> prepared = prepare_begin(batch); !prepared) return prepared.error();
        return open(batch);
    }

    /// A pass of `tokens` tokens that sees all cells, for sizing buffers and capturing graphs. It stores nothing:
    /// `put` only checks extents. Its mask's memory is kept, so that no later pass of up to so many tokens allocates
    /// or moves it.
    Pass<State> reserve(std::int32_t tokens) {
        state_->expect_no_pass("reserve");
        CELLAR_EXPECTS(tokens >= 0 && tokens <= limits().batch, "reserve: ", tokens, " tokens, expected 0 to ",
                       limits().batch);
        const Cell all = cells();
        state_->reserve(tokens);
        return Pass<State>{*state_, tokens, {0, all}, true};
    }

    /// `to` gets the cells of `from` below position `length` in place of its own: they are shared, no data moves. If
    /// both are the same sequence nothing happens. O(runs of both + words that hold their cells + cells / 4096), a run
    /// being neighbouring positions in neighbouring cells, a word 64 cells. Throws `std::bad_alloc`, with nothing
    /// changed, if `from` holds more runs than `to` was planned for and there is no memory for them.
    Done copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        (void)prepare_copy_prefix(from, to, length).has_value(); // it never refuses
        finish_copy_prefix(from, to, length);
        return {};
    }

    /// True if a query at p would find everything it may see below p still kept. O(log positions).
    bool can_resume(Sequence s, Position p) const { return state_->book.can_resume(s, p); }

    /// The largest q <= p with can_resume(s, q): where to go on from when p itself is out of reach.
    Position resumable_prefix(Sequence s, Position p) const { return state_->book.resumable_prefix(s, p); }

    /// Drops positions [begin, end) of s and closes the gap: later tokens move down by end - begin, and their keys
    /// are turned (enqueued). `end_of_time` only drops. Cells that other sequences share are copied first, so those
    /// keep what they had. Refuses with `cannot_shift` if tokens would move under `NoShift`, with `full` if the
    /// copies find no room. A backend that throws while it moves or turns keys ends the process: there is no way back.
    Result<void> remove(Sequence s, Position begin, Position end) {
        if (const Result<void> prepared = prepare_remove(s, begin, end); !prepared) return prepared;
        finish_remove();
        return {};
    }

    /// Brings the cells in use to [0, n) with the fewest moves (enqueued). Never needed to avoid `full`; it makes
    /// histories shorter and batches contiguous. Where a backend throws, only free cells were written.
    void defragment() {
        state_->expect_no_pass("defragment");
        Ledger& ledger = state_->book.ledger();
        const Defragmentation defragmentation = ledger.prepare_defragment();
        state_->carry_out(defragmentation.plan());
        ledger.finish_defragment(defragmentation);
    }

    /// Blocks until all that was enqueued is done.
    void fence() { state_->backend.fence(); }

    /// The oldest and the newest position of s that are kept, if any.
    std::optional<PositionRange> range(Sequence s) const {
        const PositionRuns& runs = ledger().record(s).runs;
        if (runs.empty()) return std::nullopt;
        return PositionRange{runs.first(), runs.last()};
    }

    /// The tokens of s that are kept.
    std::int32_t tokens(Sequence s) const { return ledger().record(s).runs.tokens(); }

    const Shape& shape() const { return state_->shape; }
    const Limits& limits() const { return state_->book.limits(); }
    const Window& window() const { return state_->book.window(); }
    const Backend& backend() const { return state_->backend; }
    const Ledger& ledger() const { return state_->book.ledger(); }

    /// All cells, free or not.
    Cell cells() const { return ledger().cells(); }

    /// Bytes of keys and values in all layers.
    std::int64_t bytes() const {
        std::int64_t sum = 0;
        for (const auto& store : state_->stores) sum += store.bytes();
        return sum;
    }

    /// O(cells / 64 + sequences).
    Statistics statistics() const { return cellar::statistics(ledger(), bytes()); }

private:
    // A hybrid does each verb in halves, first one of all members, then the other. What prepares may refuse or throw,
    // and changes nothing that can be seen.
    template <class, class...>
    friend class Hybrid;
    template <layout_policy, cellar::backend>
    friend class EncoderMemory;

    Result<void> prepare_begin(const Batch& batch) {
        state_->expect_no_pass("begin");
        return state_->book.prepare_begin(batch);
    }

    // Not noexcept, as defragmenting may throw: a pass that is dropped undoes all of it.
    Pass<State> open(const Batch& batch) {
        Book<Window>& book = state_->book;
        if (limits().placement == Placement::contiguous && book.is_too_scattered_for(batch.tokens())) {
            defragment();
            book.make_room(batch);
        }
        book.open(batch);
        return Pass<State>{*state_, batch.tokens(), book.pass().history, false};
    }

    Result<void> prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        state_->expect_no_pass("copy_prefix");
        state_->book.ledger().prepare_copy_prefix(from, to, length);
        return {};
    }
    void finish_copy_prefix(Sequence from, Sequence to, std::int32_t length) noexcept {
        state_->book.ledger().finish_copy_prefix(from, to, length);
    }

    Result<void> prepare_remove(Sequence s, Position begin, Position end) {
        state_->expect_no_pass("remove");
        constexpr MovedKeys moved = turns_keys<ShiftPolicy> ? MovedKeys::turned : MovedKeys::kept;
        constexpr MovedKeys keys = ShiftPolicy::possible ? moved : MovedKeys::refused;
        return state_->book.ledger().prepare_remove(s, begin, end, keys, state_->removal);
    }
    void finish_remove() noexcept {
        state_->book.ledger().finish_remove(state_->removal);
        state_->carry_out(state_->removal.plan);
    }

    std::unique_ptr<State> state_;
};

} // namespace cellar
