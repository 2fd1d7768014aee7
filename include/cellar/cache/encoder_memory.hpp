// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_pass.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/cache/fwd.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/shift/unrotated_shift.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstdint>
#include <span>
#include <utility>

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
class EncoderMemory : private Cache<Layout, FullCausal, UnrotatedShift, Backend> {
    using Cells = Cache<Layout, FullCausal, UnrotatedShift, Backend>;
    using Pass = CachePass<EncoderMemory>;

    struct Look {
        Batch batch;
    };

public:
    using typename Cells::backend_type;
    using typename Cells::layout_type;
    using pass_type = Pass;

    /// Throws `std::bad_alloc` if there is not enough memory.
    EncoderMemory(CacheShape the_shape, const CacheLimits& the_limits, Backend the_backend = Backend{},
                  Where where = Where::current())
        : Cells{std::move(the_shape), at_any_position(the_limits), FullCausal{},
                UnrotatedShift{},     std::move(the_backend),      where} {
        state().holds_inputs = true;
    }

    /// See `Cache::bytes_for`. Later, `write` adds up to 16 bytes for each token of its largest pass.
    static constexpr MemoryBytes bytes_for(const CacheShape& shape, const CacheLimits& limits,
                                           const PassUses& uses = {}) {
        return Cells::bytes_for(shape, at_any_position(limits), FullCausal{}, uses);
    }

    /// Opens a pass that puts the keys and values of one input. Refuses with `full` or `batch_too_long`.
    Result<CachePass<Cells>> write(Sequence s, Position p, std::int32_t count, Where where = Where::current()) {
        const EncoderInput input{s, p, count};
        return write({&input, 1}, where);
    }

    /// The same for several inputs, whose tokens are adjacent in the pass.
    Result<CachePass<Cells>> write(std::span<const EncoderInput> inputs, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("write");
        std::int64_t count = 0;
        for (const EncoderInput& input : inputs) {
            CELLAR_EXPECTS(input.tokens >= 0, "write: an input of ", input.tokens, " tokens, expected 0 or more");
            CELLAR_EXPECTS(input.position.value >= 0 && input.position < to_end, "write: an input at position ",
                           input.position, ", expected 0 or more, and less than to_end");
            CELLAR_EXPECTS(input.sequence.value >= 0 && input.sequence.value < sequences(),
                           "write: an input of sequence ", input.sequence, ", expected 0 to ", sequences() - 1);
            count += input.tokens;
        }
        if (count > limits().batch) return detail::batch_too_long(count, limits().batch);
        BatchBuilder& batch = state().next_tokens;
        batch.clear();
        for (const EncoderInput& input : inputs) batch.add_at(input.sequence, input.position, input.tokens);
        return Cells::begin(batch, where);
    }

    /// Opens a pass that reads the inputs a decoder's batch sees, at any positions. Refuses with `batch_too_long`.
    /// Reads nothing of the batch but positions and sequences: `Batch::groups` do not make later inputs visible.
    Result<Pass> begin(const Batch& batch, Where where = Where::current()) {
        return detail::perform(*this, op::Begin{batch}, where);
    }

    /// A pass of `count` tokens that sees all cells, for sizing buffers and capturing graphs; see `Cache::reserve`.
    Pass reserve(std::int32_t count, Where where = Where::current()) {
        Cells::reserve(count, where).drop();
        return Pass{state(), count, CellRange{0, state().stores.cells()}, true};
    }

    /// Always 0: inputs are not tokens of the sequence. So `next` of a hybrid is that of its other members.
    Position next(Sequence s, Where where = Where::current()) const {
        static_cast<void>(Cells::next(s, where)); // checks s
        return Position{0};
    }
    /// Always true: inputs are never forgotten.
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        return resumable_prefix(s, p, where) == p;
    }
    /// Always p.
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        static_cast<void>(Cells::can_resume(s, p, where)); // checks s and p
        return p;
    }

    /// As those of `Cache`, of inputs. `copy_prefix` shares those at positions below its length. `remove` moves later
    /// inputs down, together with their sequence's tokens, and never refuses.
    using Cells::copy_prefix;
    using Cells::defragment;
    using Cells::erase_free_cells;
    using Cells::fence;
    using Cells::remove;
    using Cells::reserve_lists;
    using Cells::shrink_to;
    using Cells::take_plans;

    /// As those of `Cache`. `snapshot` and `split` never refuse, and `restore` only with `full` or `cannot_share`. A
    /// snapshot up to `to_end` has all inputs; a `merge` to it drops its inputs from where the child begins on.
    using Cells::merge;
    using Cells::offload;
    using Cells::reload;
    using Cells::restore;
    using Cells::rewind;
    using Cells::snapshot;
    using Cells::split;

    /// As those of `Cache`. The tokens of an input have one position, so each is a run of its own.
    using Cells::range;
    using Cells::tokens;
    using Cells::visit_cells;
    using Cells::visit_kept_cells;

    /// The same as in `Cache`.
    using Cells::backend;
    using Cells::bytes;
    using Cells::cells;
    using Cells::cells_freed_by;
    using Cells::evictable_cells;
    using Cells::free_cells;
    using Cells::generation;
    using Cells::holds_data;
    using Cells::layers;
    using Cells::limits;
    using Cells::rows;
    using Cells::sequences;
    using Cells::shape;
    using Cells::statistics;

    /// `begin` takes no cells: it reads. `write` takes one for each token of an input.
    std::int32_t cells_needed(const Batch&) const { return 0; }

    /// The two phases of operations; see `Performs`. Inputs have no schedules and no promises.
    using Cells::finish;
    using Cells::prepare;
    void prepare(const op::Promise&) = delete;
    void prepare(const op::FormPages&) = delete;
    void prepare(const op::Schedule&) = delete;
    void prepare(const op::Unschedule&) = delete;
    Attempt<Look> prepare(const op::Begin& begin) {
        state().expect_no_pass("begin");
        return {Look{{begin.batch.positions, begin.batch.sequences}}, state().book.prepare_look(begin.batch)};
    }
    Pass finish(Look&& look) noexcept {
        state().book.look(look.batch);
        return Pass{state(), look.batch.tokens(), state().book.pass().history, false};
    }

    /// For hybrids, prefix trees, files and transfers; see `Cache`.
    constexpr bool counts_tokens() const { return false; }
    using Cells::can_restore;
    using Cells::frees_cells;
    using Cells::frees_together;
    using Cells::occupied_bytes;
    using Cells::save;
    using Cells::save_ahead;
    using Cells::set_evictable;

private:
    friend struct MemoryAccess;
    using Cells::state;

    static constexpr CacheLimits at_any_position(CacheLimits limits) {
        limits.positions = Positions::any;
        return limits;
    }
};

} // namespace cellar
