// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/cache/detail/snapshots.hpp>
#include <cellar/cache/encoder_pass.hpp>
#include <cellar/cache/fwd.hpp>
#include <cellar/cache/statistics.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/shift/unrotated_shift.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar {

/// The tokens that an encoder computes from one input (an image, a recording). All of them have one position of the
/// sequence, and the sequence's tokens from that position on see them.
struct EncoderInput {
    Sequence sequence{};
    Position position{};
    std::int32_t tokens = 0;
};

/// The keys and values of cross attention: written once per input, and visible to every token of its sequence from the
/// input's position on. Inputs accumulate, as the images of a conversation do; `remove` drops them.
///
/// In `CacheLimits`, the capacity counts tokens of inputs. The batch limits the tokens that one pass writes, and also
/// the tokens of a decoder's batch that reads. `positions` has no meaning: inputs and the tokens that read them may
/// have any position.
///
/// The constructor allocates all memory for keys and values; its addresses change only with `initial_cells`. Every
/// operation does all it says, or refuses and leaves the memory as it was. Movable, not copyable. One thread may use it
/// at a time.
template <LayoutPolicy Layout, BackendPolicy Backend>
class EncoderMemory {
    using Cells = Cache<Layout, FullCausal, UnrotatedShift, Backend>;
    using Pass = EncoderPass<EncoderMemory>;
    using Where = std::source_location;

public:
    using layout_type = Layout;
    using backend_type = Backend;

    /// Throws `std::bad_alloc` if there is not enough memory.
    EncoderMemory(CacheShape shape, const CacheLimits& limits, Backend backend = Backend{},
                  Where where = Where::current())
        : cells_{std::move(shape), at_any_position(limits), FullCausal{}, UnrotatedShift{}, std::move(backend), where} {
        positions_.reserve(static_cast<std::size_t>(limits.batch));
        sequences_.reserve(static_cast<std::size_t>(limits.batch));
    }

    /// Opens a pass that puts the keys and values of one input. Refuses with `full` or `batch_too_long`.
    Result<CachePass<Cells>> write(Sequence s, Position p, std::int32_t tokens, Where where = Where::current()) {
        const EncoderInput input{s, p, tokens};
        return write({&input, 1}, where);
    }

    /// The same for several inputs, whose tokens follow one another.
    Result<CachePass<Cells>> write(std::span<const EncoderInput> inputs, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("write");
        std::int64_t tokens = 0;
        for (const EncoderInput& input : inputs) {
            CELLAR_EXPECTS(input.tokens >= 0, "write: an input of ", input.tokens, " tokens, expected 0 or more");
            CELLAR_EXPECTS(input.position.value >= 0 && input.position < to_end, "write: an input at position ",
                           input.position, ", expected 0 or more, and less than to_end");
            CELLAR_EXPECTS(input.sequence.value >= 0 && input.sequence.value < sequences(),
                           "write: an input of sequence ", input.sequence, ", expected 0 to ", sequences() - 1);
            tokens += input.tokens;
        }
        if (tokens > limits().batch) return Reason::batch_too_long;
        positions_.clear();
        sequences_.clear();
        for (const EncoderInput& input : inputs) {
            positions_.resize(positions_.size() + static_cast<std::size_t>(input.tokens), input.position);
            sequences_.resize(sequences_.size() + static_cast<std::size_t>(input.tokens), input.sequence);
        }
        return cells_.begin({positions_, sequences_}, where);
    }

    /// Opens a pass that reads the inputs a decoder's batch sees, at any positions. Refuses with `batch_too_long`.
    /// Reads nothing of the batch but positions and sequences: `Batch::groups` do not make later inputs visible.
    Result<Pass> begin(const Batch& batch, Where where = Where::current()) {
        const detail::Caller caller{where};
        auto prepared = prepare_begin(batch);
        if (!prepared) return prepared.error();
        return detail::Made{[&] { return finish(*std::move(prepared)); }};
    }

    /// A pass of `tokens` tokens that sees all cells, for sizing buffers and capturing graphs; see `Cache::reserve`.
    Pass reserve(std::int32_t tokens, Where where = Where::current()) {
        cells_.reserve(tokens, where).drop();
        return MemoryAccess::make<Pass>(state(), tokens, CellRange{0, state().allocated}, true);
    }

    /// See `Cache::reserve_lists`.
    void reserve_lists(std::int32_t cells, std::int32_t page_size = 0, Where where = Where::current()) {
        cells_.reserve_lists(cells, page_size, where);
    }

    /// `to` gives up its own inputs and shares those of `from` at positions below `length`. No data moves, and it never
    /// refuses.
    Result<void> copy_prefix(Sequence from, Sequence to, std::int32_t length, Where where = Where::current()) {
        return cells_.copy_prefix(from, to, length, where);
    }

    /// Always 0: inputs are not tokens of the sequence. So `next` of a hybrid is that of its other members.
    Position next(Sequence s, Where where = Where::current()) const {
        static_cast<void>(cells_.next(s, where)); // checks s
        return {0};
    }

    /// Always true: inputs are never forgotten.
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        return resumable_prefix(s, p, where) == p;
    }

    /// Always p.
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        static_cast<void>(cells_.can_resume(s, p, where)); // checks s and p
        return p;
    }

    /// Drops the inputs at positions [begin, end) of s. Later ones move down by end - begin, together with their
    /// sequence's tokens. Never refuses.
    Result<void> remove(Sequence s, Position begin, Position end, Where where = Where::current()) {
        return cells_.remove(s, begin, end, where);
    }

    /// The inputs of s at positions [from, to), to be kept whatever happens to s; see `Cache::snapshot`. Never refuses.
    Result<CellSnapshot> snapshot(Sequence s, Position from = {0}, Position to = to_end,
                                  Where where = Where::current()) {
        const detail::Caller caller{where};
        auto prepared = prepare_snapshot(s, from, to);
        if (!prepared) return prepared.error();
        return detail::Made{[&] { return finish(*std::move(prepared)); }};
    }

    /// s gives up its inputs from position `snapshot.from()` on, and shares those of the snapshot below position `to`,
    /// which lies within the snapshot. Refuses with `cannot_share` as `Cache::restore` does.
    Result<void> restore(Sequence s, const CellSnapshot& snapshot, Position to, Where where = Where::current()) {
        const detail::Caller caller{where};
        return MemoryAccess::finish_if(*this, prepare_restore(s, snapshot, to));
    }
    Result<void> restore(Sequence s, const CellSnapshot& snapshot, Where where = Where::current()) {
        return restore(s, snapshot, snapshot.to(where), where);
    }
    /// Without a snapshot: drops the inputs of s from position `to` on. Never refuses.
    Result<void> restore(Sequence s, Position to, Where where = Where::current()) {
        const detail::Caller caller{where};
        finish(*prepare_rewind(s, to));
        return {};
    }

    /// See `Cache::merge`. A parent up to `to_end` ends where the child begins: its inputs from there on are dropped.
    Result<void> merge(CellSnapshot& parent, CellSnapshot&& child, Where where = Where::current()) {
        return cells_.merge(parent, std::move(child), where);
    }
    /// See `Cache::split`. Never refuses.
    Result<CellSnapshot> split(CellSnapshot& snapshot, Position at, Where where = Where::current()) {
        return cells_.split(snapshot, at, where);
    }

    /// See `Cache::page_out`.
    void page_out(CellSnapshot& snapshot, PageTo to = PageTo::host, Where where = Where::current()) {
        cells_.page_out(snapshot, to, where);
    }
    /// See `Cache::page_in`.
    Result<void> page_in(CellSnapshot& snapshot, Where where = Where::current()) {
        return cells_.page_in(snapshot, where);
    }

    /// See `Cache::defragment`.
    void defragment(Where where = Where::current()) { cells_.defragment(where); }

    /// Blocks until all enqueued work is done.
    void fence(Where where = Where::current()) { cells_.fence(where); }

    /// The positions of the oldest and the newest input of s, if it has any.
    std::optional<PositionRange> range(Sequence s, Where where = Where::current()) const {
        return cells_.range(s, where);
    }

    /// The tokens of all inputs of s.
    std::int32_t tokens(Sequence s, Where where = Where::current()) const { return cells_.tokens(s, where); }

    /// See `Cache::visit_cells`. The tokens of an input have one position, so each is a run of its own.
    template <class F>
    void visit_cells(Sequence s, F&& f, Where where = Where::current()) const {
        cells_.visit_cells(s, std::forward<F>(f), where);
    }
    /// See `Cache::visit_kept_cells`.
    template <class F>
    void visit_kept_cells(F&& f, Where where = Where::current()) const {
        cells_.visit_kept_cells(std::forward<F>(f), where);
    }

    const CacheShape& shape(Where where = Where::current()) const { return cells_.shape(where); }
    const CacheLimits& limits(Where where = Where::current()) const { return cells_.limits(where); }
    const Backend& backend(Where where = Where::current()) const { return cells_.backend(where); }
    int layers(Where where = Where::current()) const { return cells_.layers(where); }
    std::int32_t sequences(Where where = Where::current()) const { return cells_.sequences(where); }
    Cell cells(Where where = Where::current()) const { return cells_.cells(where); }
    std::int64_t bytes(Where where = Where::current()) const { return cells_.bytes(where); }
    CacheStatistics statistics(Where where = Where::current()) const { return cells_.statistics(where); }

private:
    friend struct MemoryAccess;
    static constexpr bool notes_growth = true;
    static constexpr bool counts_tokens() { return false; }

    struct Look {
        Batch batch;
    };

    static CacheLimits at_any_position(CacheLimits limits) {
        limits.positions = Positions::any;
        return limits;
    }

    auto& state() { return MemoryAccess::state(cells_); }
    const auto& state() const { return MemoryAccess::state(cells_); }

    Result<Look> prepare_begin(const Batch& batch) {
        state().expect_no_pass("begin");
        if (const Result<void> prepared = state().book.prepare_look(batch); !prepared) return prepared.error();
        return Look{{batch.positions, batch.sequences}};
    }
    Pass finish(Look&& look) noexcept {
        state().book.look(look.batch);
        return MemoryAccess::make<Pass>(state(), look.batch.tokens(), state().book.pass().history, false);
    }

    auto prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        return MemoryAccess::prepare_copy_prefix(cells_, from, to, length);
    }
    auto prepare_remove(Sequence s, Position begin, Position end) {
        return MemoryAccess::prepare_remove(cells_, s, begin, end);
    }
    auto prepare_snapshot(Sequence s, Position from, Position to) {
        return MemoryAccess::prepare_snapshot(cells_, s, from, to, detail::Resuming::anywhere);
    }
    auto prepare_restore(Sequence s, const CellSnapshot& snapshot, Position to) {
        return MemoryAccess::prepare_restore(cells_, s, snapshot, to, detail::Resuming::anywhere);
    }
    bool can_restore(const CellSnapshot& snapshot, Position to) const {
        return snapshot.from() <= to && to <= snapshot.to();
    }
    bool frees_cells(const CellSnapshot& snapshot) const { return MemoryAccess::frees_cells(cells_, snapshot, -1); }
    std::int64_t occupied_bytes(const CellSnapshot& snapshot) const {
        return MemoryAccess::occupied_bytes(cells_, snapshot);
    }
    auto prepare_rewind(Sequence s, Position to) {
        state().expect_no_pass("restore");
        CELLAR_EXPECTS(to.value >= 0, "restore: position ", to, ", expected 0 or more");
        return prepare_remove(s, to, to_end);
    }
    auto prepare_page_out(CellSnapshot& snapshot, PageTo to) {
        return MemoryAccess::prepare_page_out(cells_, snapshot, to);
    }
    auto prepare_page_in(CellSnapshot& snapshot) { return MemoryAccess::prepare_page_in(cells_, snapshot); }
    auto prepare_merge(CellSnapshot& parent, CellSnapshot& child) {
        return MemoryAccess::prepare_merge(cells_, parent, child);
    }
    auto prepare_split(CellSnapshot& snapshot, Position at) {
        return MemoryAccess::prepare_split(cells_, snapshot, at);
    }

    auto prepare_defragment() { return MemoryAccess::prepare_defragment(cells_); }
    template <class Prepared>
    void finish_defragment(const Prepared& prepared) {
        MemoryAccess::finish_defragment(cells_, prepared);
    }

    void save(const CellSnapshot& snapshot, const std::string& prefix, detail::StoredSnapshot& stored) {
        MemoryAccess::save(cells_, snapshot, prefix, stored, detail::Resuming::anywhere);
    }
    void save_ahead(Sequence s, Position to, const std::string& prefix, detail::StoredSnapshot& stored) {
        detail::Snapshots{state()}.save_ahead(s, to, prefix, stored, detail::Resuming::anywhere);
    }
    auto prepare_load(detail::StoredSource& source, const std::string& prefix, std::vector<detail::StoredArray>& arrays,
                      detail::LoadTo to = detail::LoadTo::host) {
        return MemoryAccess::prepare_load(cells_, source, prefix, arrays, to, detail::Resuming::anywhere);
    }

    template <class Prepared>
    auto finish(Prepared&& prepared) noexcept {
        return MemoryAccess::finish(cells_, std::forward<Prepared>(prepared));
    }

    Cells cells_;
    detail::TrivialList<Position> positions_; // of the inputs being written
    detail::TrivialList<Sequence> sequences_;
};

} // namespace cellar
