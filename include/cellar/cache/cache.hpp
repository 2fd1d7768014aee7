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
#include <cellar/base/plan.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/cell_table.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/page_forming.hpp>
#include <cellar/book/removal.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_pass.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/cache/cell_room.hpp>
#include <cellar/cache/cell_snapshot.hpp>
#include <cellar/cache/detail/cache_state.hpp>
#include <cellar/cache/detail/cell_snapshots.hpp>
#include <cellar/cache/fwd.hpp>
#include <cellar/cache/layer_memory.hpp>
#include <cellar/cache/statistics.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/shift/disabled_shift.hpp>
#include <cellar/shift/shift.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar {

/// The keys and values of a model's attention layers (KV cache), for any number of sequences.
///
/// - `Layout`: order and element types in memory (`StandardV<half>`, `PermutedV<bf16>`, ...).
/// - `Window`: what a token may see (`FullCausal`, `SlidingWindow<4096>`, `ChunkedAttention<8192>`).
/// - `Shift`: what happens to a key whose token moves to another position (`DisabledShift`, `UnrotatedShift`,
///   `RopeShift<Neox>`, `RotateOnRead<Neox>`).
/// - `Backend`: where the memory is and who works on it (`HostBackend`, `EigenBackend`, `KokkosBackend<>`),
///   or `NoData` if the program has keys and values itself.
///
/// The constructor allocates all memory for keys and values; its addresses change only with `initial_cells`. Every
/// operation does all it says, or refuses and changes nothing. Movable, not copyable. One thread at a time may use it.
template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
class Cache : public CellRoom<Cache<Layout, Window, Shift, Backend>> {
    static_assert(
        StoresFormat<Backend, typename Layout::key_format> && StoresFormat<Backend, typename Layout::value_format>,
        "Cache: this backend does not store keys or values in a format of the layout; see StoresFormat");
    using State = detail::CacheState<Layout, Window, Shift, Backend>;
    using Pass = CachePass<Cache>;
    static constexpr detail::Gaps gaps = Shift::possible ? detail::Gaps::closed : detail::Gaps::refused;

    struct Opening {
        Batch batch;
        std::unique_ptr<detail::Defragmentation> defragmentation{}; ///< to make room before the pass opens
    };

public:
    using layout_type = Layout;
    using window_type = Window;
    using shift_type = Shift;
    using backend_type = Backend;
    using pass_type = Pass; ///< of any memory M: `PassOf<M>`

    /// False if keys and values are not here: see `NoData`.
    static constexpr bool holds_data = !HoldsNoData<Backend>;

    /// Throws `std::bad_alloc` if there is not enough memory. Violations: limits out of range, with neither a capacity
    /// nor cells, or of more than 2^31 - 64 cells; a retention below the window's width; rotary pairs that do not fit
    /// into `key_dim`; frequencies for each of another number of layers.
    Cache(CacheShape shape, const CacheLimits& limits, const Window& window = Window{}, Shift shift = Shift{},
          Backend backend = Backend{}, Where where = Where::current());

    /// The same in memory of a program's own, which must outlive the cache: `memory[i]` of layer i, that of layers that
    /// share another's memory is ignored. It is set to zeros. Violations: memory that is too small, not aligned, or of
    /// other strides than the layout's; `initial_cells`.
    Cache(CacheShape shape, const CacheLimits& limits, std::span<const LayerMemory> memory,
          const Window& window = Window{}, Shift shift = Shift{}, Backend backend = Backend{},
          Where where = Where::current()) requires(BorrowsMemory<Backend>)
        : state_{[&] {
              const detail::Caller caller{where};
              CELLAR_EXPECTS(!memory.empty(), "memory: of 0 layers, expected of all ", detail::resolved(shape).layers);
              return std::make_unique<State>(std::move(shape), limits, window, std::move(shift), std::move(backend),
                                             memory);
          }()} {}

    /// Opens a pass and gives every stored token a cell. Refuses with `full` or `batch_too_long`, and under
    /// `Positions::consecutive` with `not_next` or `cannot_resume`. O(tokens * log cells), and O(cells / 2048) to find
    /// neighbouring cells: once, or under `Placement::blocks` for each sequence with several tokens. Tokens inserted
    /// before others of their sequence also move its later runs. Under `Placement::contiguous`, defragments first if no
    /// free run is long enough. With `initial_cells`, may move all keys and values to larger memory. Throws
    /// `std::bad_alloc`, with no pass open.
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

    /// A pass of `tokens` tokens that sees all cells that have memory and stores nothing, for sizing buffers and
    /// capturing graphs: `put` only checks extents. Its `mask<T>()` allocates the memory of masks: those of later
    /// passes of at most this many tokens neither allocate nor change address.
    Pass reserve(std::int32_t tokens, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("reserve");
        CELLAR_EXPECTS(tokens >= 0 && tokens <= limits().batch, "reserve: ", tokens, " tokens, expected 0 to ",
                       limits().batch);
        state().reserve(tokens);
        return Pass{state(), tokens, CellRange{0, state().stores.cells()}, true};
    }

    /// Room for `CachePass::lists` of at most `cells` visible cells a sequence. With a page size, also for their
    /// `pages`. Up to that, the addresses of the lists do not change; those of pages, until another size is asked for.
    /// Takes 12 bytes for each cell and sequence (20 with a window that slides), committed as they are used; a device 8
    /// (12) more, at once. Throws `std::bad_alloc`, also for more than 2^31 - 1 entries in all; some addresses may then
    /// have changed.
    void reserve_lists(std::int32_t cells, std::int32_t page_size = 0, Where where = Where::current()) {
        const detail::Caller caller{where};
        state().expect_no_pass("reserve_lists");
        CELLAR_EXPECTS(cells >= 0 && page_size >= 0, "reserve_lists: ", cells, " cells, pages of ", page_size,
                       ", expected 0 or more");
        state().reserve_lists(cells, page_size);
    }

    /// `to` gives up its own cells and shares those of `from` below position `end` (all, with `to_end` or if `from` is
    /// shorter). No data moves. Refuses with `cannot_resume` if `to` could not go on there, because the window has
    /// forgotten what its next token would see, unless positions may have gaps: up to `resumable_prefix(from, end)` it
    /// never refuses. Nothing happens if both are the same sequence. In any case O(all
    /// runs of both + 64-cell words they span + cells / 8192), where a run is neighbouring positions in neighbouring
    /// cells. Throws `std::bad_alloc`, with nothing changed, if there is no memory for the runs of `to`.
    Result<void> copy_prefix(Sequence from, Sequence to, Position end, Where where = Where::current()) {
        return detail::perform(*this, op::CopyPrefix{from, to, end}, where);
    }

    /// The position of the next token of s: after its last one, or where `remove`, `copy_prefix` or `restore` cut it,
    /// though its window may keep no token below. Under `Positions::any`, always after the last kept one; 0 if none is.
    Position next(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().book.next(s);
    }

    /// True if s can go on at p: everything that a query at p would see below p is still kept. Never beyond next(s),
    /// unless positions may have gaps. O(log positions).
    bool can_resume(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().book.can_resume(s, p);
    }

    /// The largest q <= p with can_resume(s, q). For a window that both slides and restarts in chunks: some q that can
    /// resume, perhaps not the largest. O(log positions) for each gap between p and q.
    Position resumable_prefix(Sequence s, Position p, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return state().book.resumable_prefix(s, p);
    }

    /// From this position of s on, keys and values may differ from those that a prefill of its tokens gives; `to_end`
    /// if none do. A removal that closes a gap alters what lies behind, because those tokens have seen the removed
    /// ones. So does, under `Positions::any`, a token that is put before others, and one that lacks some of what it
    /// sees. Copies, snapshots, files and transfers pass it on, and going back to it, or further, ends it. That the
    /// tokens below a snapshot that does not begin at 0 are the same in s is for the caller of `restore` to know; so it
    /// is for `merge`. Passes that another memory stores in part do not count. O(1).
    Position altered_from(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return table().altered_from(s);
    }

    /// Removes positions [begin, end) of s and closes the gap: later tokens move down by end - begin, and their keys
    /// are rotated (enqueued). With `to_end`, nothing is left to move. Shared cells are copied before they are rotated,
    /// so other sequences keep theirs. Refuses with `cannot_shift` if tokens would have to move under `DisabledShift`,
    /// and with `full` if there is no room for the copies. Unless positions may have gaps, also with `cannot_resume` if
    /// the next token of s would then see positions that are not kept. A negative or reversed range is a violation.
    /// Throws `std::bad_alloc`, with nothing changed, if there is no memory for the lists of this work. A backend that
    /// throws while it moves or rotates keys ends the process, because bookkeeping and data would disagree.
    ///
    /// O(64-cell words of the removed and the moved tokens + cells / 8192); at worst, O(tokens + cells / 8192). Copies
    /// also need cells, as a batch in `begin` does. In each layer, every key is rotated or copied once at most.
    Result<void> remove(Sequence s, Position begin, Position end, Where where = Where::current()) {
        return detail::perform(*this, op::Remove{s, begin, end}, where);
    }

    /// The same for models whose rotary positions are not the order of their tokens (M-RoPE: the tokens of an image
    /// move them by less than their number): the keys of later tokens are rotated back by `rotate_by` positions instead
    /// of end - begin. An empty range changes nothing, whatever the number.
    Result<void> remove(Sequence s, Position begin, Position end, RotateBy rotate_by,
                        Where where = Where::current()) requires(rotates_keys<Shift>) {
        return detail::perform(*this, op::Remove{s, begin, end, rotate_by}, where);
    }

    /// The tokens of s at positions [from, to), to be kept whatever happens to s: the snapshot shares its cells. No
    /// data moves, and no cell is needed. O(runs + 64-cell words they span), as its release is; allocates the list of
    /// runs. `to_end`: up to the next token of s. If a pass that ends at `to` forgets tokens, the snapshot has what
    /// such a pass keeps, and begins at 0 (see `CellSnapshot::from`). Refuses with `cannot_resume` if s could not
    /// resume at `to`, and, unless positions may have gaps, if `to` is more than next(s).
    Result<CellSnapshot> snapshot(Sequence s, Position from = Position{0}, Position to = to_end,
                                  Where where = Where::current()) {
        return detail::perform(*this, op::Snapshot{s, from, to}, where);
    }

    /// Asks for a snapshot ahead of time, at a position that passes will reach or go past. s then keeps what a pass
    /// ending at p would have kept, so `snapshot(s, 0, p)` does not refuse. That takes at most as many cells as the
    /// window keeps for one sequence, beyond those that `CacheLimits` plans for.
    ///
    /// The schedule ends, and s forgets what nothing else keeps, when a snapshot of s that ends at p is taken; by
    /// `unschedule`; when tokens below p are removed after s has reached p, or a gap below p is closed; and when s
    /// becomes empty, becomes a copy of another sequence, or is restored from a snapshot.
    /// Refuses with `already_passed` if p is not greater than next(s). Does nothing if the window forgets nothing. Each
    /// scheduled position whose window has begun adds O(log positions) to the commits of s.
    Result<void> schedule(Sequence s, Position p, Where where = Where::current()) {
        return detail::perform(*this, op::Schedule{s, p}, where);
    }
    /// Ends a schedule before it is used. Does nothing if there is none for s at p. Throws `std::bad_alloc`, with
    /// nothing changed, if there is no memory for the runs of s.
    void unschedule(Sequence s, Position p, Where where = Where::current()) {
        detail::perform(*this, op::Unschedule{s, p}, where).value();
    }

    /// s gives up its tokens from position `snapshot.from()` on, and shares those of the snapshot below position `to`,
    /// which lies within the snapshot: the next token of s has position `to`. No data moves, and no cell is needed.
    /// O(runs + 64-cell words they span), plus O(cells / 64) if `remove` ever moved a token of the cache without
    /// rotating its key. Refuses with `cannot_resume` if s could not resume there: it lacks tokens below
    /// `snapshot.from()`, or the window would be incomplete. Refuses with `cannot_share` if a token of the snapshot has
    /// another position in s by now: `remove` moved it without rotating its key, and s would have it twice.
    ///
    /// A snapshot that is offloaded stays so: its rows are copied to cells that s alone owns (enqueued; see
    /// `offload`; costs as `reload`). Refuses with `full` if too few cells are free, those that s gives up included.
    Result<void> restore(Sequence s, const CellSnapshot& snapshot, Position to, Where where = Where::current()) {
        return detail::perform(*this, op::Restore<CellSnapshot>{s, snapshot, to}, where);
    }
    /// The same, up to the snapshot's end.
    Result<void> restore(Sequence s, const CellSnapshot& snapshot, Where where = Where::current()) {
        return restore(s, snapshot, snapshot.to(where), where);
    }

    /// The way back: s gives up its tokens from position `to` on, and goes on there. Refuses with `cannot_resume` if s
    /// lacks what its next token would see, and with `not_next` if it has not come so far. O(log positions), and what
    /// `remove` takes.
    Result<void> rewind(Sequence s, Position to, Where where = Where::current()) {
        return detail::perform(*this, op::Rewind{s, to}, where);
    }

    /// `parent` grows by `child`, which begins where `parent` ends and is then as if moved from. If it begins at 0 (it
    /// has a whole window), it takes the place of `parent`. May allocate. O(runs of `child`; if `remove` moved a token
    /// without rotating its key, runs of both + cells / 64). Refuses with `cannot_share` if a token had two positions.
    ///
    /// If one of them is offloaded, `parent` stays where it is. If `parent` is in place, it gets cells for the rows of
    /// `child`, and `merge` refuses with `full` if there are too few. If it is offloaded, both are copied to new memory
    /// of the same kind (`OffloadTo`), and the old is given up afterwards. Blocks. A `child` that takes the place of
    /// `parent` stays where it is.
    Result<void> merge(CellSnapshot& parent, CellSnapshot&& child, Where where = Where::current()) {
        return detail::perform(*this, op::Merge<CellSnapshot>{parent, child}, where);
    }

    /// Divides a snapshot: it keeps positions below `at`, and the result has those from `at` on. O(runs); allocates the
    /// list of runs. Refuses with `cannot_split` if a pass that ends at its end forgets tokens. If the sequence had
    /// forgotten some, both parts lack them: `restore` refuses where the window would be incomplete.
    ///
    /// A snapshot that is offloaded stays so. Its rows are copied to new memory of the same kind (`OffloadTo`) for the
    /// two parts, and the old is given up afterwards. Blocks.
    Result<CellSnapshot> split(CellSnapshot& snapshot, Position at, Where where = Where::current()) {
        return detail::perform(*this, op::Split<CellSnapshot>{snapshot, at}, where);
    }

    /// Moves the keys and values of the snapshot to memory of its own, and gives up its cells. The memory is one block
    /// for all keys and one for all values. Throws `std::bad_alloc`, with nothing changed, if there is none.
    /// Does nothing if the snapshot is offloaded already. Enqueues; blocks if the data goes to memory of the host that
    /// the backend's work cannot reach, or `CacheLimits::offload_as` gives it other formats. O(runs + tokens); each row
    /// is copied once, by way of a buffer if it blocks.
    void offload(CellSnapshot& snapshot, OffloadTo to = OffloadTo::host, Where where = Where::current()) {
        static_assert(holds_data, "offload: this cache has no keys and values (its backend is NoData), expected a "
                                  "backend with memory; or drop the snapshot, and copy the rows of its cells yourself");
        detail::perform(*this, op::Offload<CellSnapshot>{snapshot, to}, where).value();
    }

    /// Brings a snapshot that is offloaded back into cells, which any number of sequences may share. Does nothing if it
    /// is in place already. Blocks. Refuses with `full` if there are too few free cells. O(runs + tokens), and what
    /// `begin` needs to find cells; each row is copied once, as by `offload`.
    Result<void> reload(CellSnapshot& snapshot, Where where = Where::current()) {
        static_assert(holds_data, "reload: this cache has no keys and values (its backend is NoData), so none of its "
                                  "snapshots is offloaded; expected a backend with memory");
        return detail::perform(*this, op::Reload<CellSnapshot>{snapshot}, where);
    }

    /// Copies tokens of s to cells of its own where that is needed so that `CachePass::pages` of this size finds pages,
    /// now and as s goes on: what s shares of a page that is not full, and pages that tokens of several origins would
    /// share. Call it after `copy_prefix` or `restore` up to a position that is no multiple of the page size, and
    /// after s went back into a page that it shares. Whole pages stay shared. Usually, less than one page is copied
    /// (enqueued).
    ///
    /// `page_size` divides 64, which is a violation otherwise. Later tokens of s keep to pages under
    /// `Placement::blocks`, as long as there are wholly free blocks. Refuses with `no_pages` if s has gaps, or several
    /// tokens at a position, and with `full` if too few cells are free or they are promised to others, or too few of
    /// them are whole pages; pages that its own tokens leave count. Names s.
    /// O(runs + pages of s). Throws `std::bad_alloc`, with nothing changed.
    Result<void> form_pages(Sequence s, std::int32_t page_size, Where where = Where::current()) {
        return detail::perform(*this, op::FormPages{s, page_size}, where);
    }

    /// Moves the cells in use to [0, n) with the fewest moves possible (enqueued). Never needed to avoid `full`; it
    /// makes histories shorter and batches contiguous. If a backend throws, the cache is as it was.
    void defragment(Where where = Where::current()) { detail::perform(*this, op::Defragment{}, where).value(); }

    /// Writes zeros to the keys and values of all free cells. Otherwise they stay until other tokens take the cells,
    /// and views of a history show them. For a server of several tenants, when one leaves. Snapshots that are offloaded
    /// are elsewhere, and what is released to the system is not erased. Blocks. O(cells), and a row for each free
    /// cell. Throws `std::bad_alloc` if there are no 8 MiB to work with, with some cells erased.
    void erase_free_cells(Where where = Where::current()) {
        detail::expect_rows<holds_data>();
        const detail::Caller caller{where};
        state().expect_no_pass("erase_free_cells");
        state().erase_free_cells();
    }

    /// For a cache without keys and values (`NoData`): what `remove`, `defragment` and `begin` (which defragments under
    /// `Placement::contiguous`) left to the program since the last call, in this order. Carry out one plan after the
    /// other: first its moves, for the keys and the values of each layer that has memory of its own; then its
    /// rotations, for the keys of these layers. Cells and positions are the same for all layers.
    ///
    /// Call it after `begin`, and carry out the plans before the pass writes or reads a cell. The commit of a pass is a
    /// violation while there are plans, because its kernels found keys at other places or positions than the
    /// bookkeeping says. So the list has the operations between two commits at most. It grows in their first phase, by
    /// one plan each, and in no decode step. O(1).
    std::vector<Plan> take_plans(Where where = Where::current()) requires(!holds_data) {
        return std::exchange(state(where).plans, {});
    }

    /// Blocks until all enqueued work is done.
    void fence(Where where = Where::current()) { state(where).backend.fence(); }

    /// The keys and values of a layer in place, in all cells that have memory: `keys` [cells, kv_heads, key_dim] and
    /// `values` [cells, kv_heads, value_dim], indexed by `Cell`. Views as of `CachePass::keys`, of constant elements if
    /// the cache is constant; a layer that shares another's memory has the rows of that one. They lie in the memory of
    /// the backend; `HostBackend` and `EigenBackend` align the first row to 64 bytes, except in memory of a program's
    /// own. Also while a pass is open: for tensors of other libraries that are made once, before any pass. Their
    /// kernels may write to the cells of the open pass, and nowhere else; see `CachePass::mark_put`. O(1).
    auto rows(int layer, Where where = Where::current()) const {
        detail::expect_rows<holds_data>();
        const detail::Caller caller{where};
        return state(where).rows("rows", layer);
    }
    auto rows(int layer, Where where = Where::current()) {
        detail::expect_rows<holds_data>();
        const detail::Caller caller{where};
        return state(where).rows("rows", layer);
    }

    /// Changes whenever the addresses and the number of cells of `rows` may have changed: only with `initial_cells`, in
    /// operations that need cells, whatever they then return. Moving the cache changes neither. O(1).
    std::uint64_t generation(Where where = Where::current()) const {
        detail::expect_rows<holds_data>();
        return state(where).stores.generation();
    }

    /// The oldest and the newest kept position of s, if it has tokens.
    std::optional<PositionRange> range(Sequence s, Where where = Where::current()) const {
        const detail::PositionRuns& kept = runs(s, where);
        if (kept.empty()) return std::nullopt;
        return PositionRange{kept.first(), kept.last()};
    }

    /// How many tokens of s are kept.
    std::int32_t tokens(Sequence s, Where where = Where::current()) const { return runs(s, where).tokens(); }

    /// Calls f(position, cell, count) for the kept tokens of s, in the order of positions: positions [position,
    /// position + count) lie in cells [cell, cell + count). O(runs).
    template <class F>
    void visit_cells(Sequence s, F&& f, Where where = Where::current()) const {
        runs(s, where).for_each(Position{0}, to_end, std::forward<F>(f));
    }

    /// With `layers` and `each_layer`, however it was given.
    const CacheShape& shape(Where where = Where::current()) const { return state(where).shape; }
    /// The limits, with `batch` filled in and the paddings that the layout needs.
    const CacheLimits& limits(Where where = Where::current()) const { return state(where).limits; }
    /// The window with its defaults filled in.
    const Window& window(Where where = Where::current()) const { return state(where).book.window(); }
    /// The backend: where data lies, and what works on it.
    const Backend& backend(Where where = Where::current()) const { return state(where).backend; }

    int layers(Where where = Where::current()) const { return shape(where).layers; }
    std::int32_t sequences(Where where = Where::current()) const { return limits(where).sequences; }

    /// All cells, free or not.
    Cell cells(Where where = Where::current()) const { return table(where).cells(); }

    /// What a cache takes that is made with these arguments, and whose passes are asked for what `uses` says: exactly,
    /// and before anything is allocated. With `initial_cells`, it is what the cache has once all cells have memory.
    ///
    /// It counts what is asked of allocators, without the frequencies of a shift and what a backend has for itself. A
    /// block on the host takes up to 64 bytes more, so that it is aligned, and one of 32 MiB or more up to 2 MiB, which
    /// are never written. Later, operations add what they keep: snapshots, schedules, promises, and runs of sequences
    /// that are longer than their share (docs/design.md). `visible` and `attend` add memory of their own
    /// (`attend_bytes`), and `begin(s, n)` up to 16 bytes for each token of the largest pass.
    static constexpr MemoryBytes bytes_for(const CacheShape& shape, const CacheLimits& limits,
                                           const Window& window = Window{}, const PassUses& uses = {}) {
        return State::bytes_for(shape, limits, window, uses);
    }

    /// Bytes of keys and values in all layers.
    std::int64_t bytes(Where where = Where::current()) const { return state(where).stores.bytes(); }

    /// O(cells / 64 + sequences + snapshots).
    CacheStatistics statistics(Where where = Where::current()) const {
        const State& s = state(where);
        return detail::statistics_of(s.book.table(), s.stores.cells(), s.stores.bytes());
    }

    /// The two phases of these operations; see `Performs`.
    Attempt<Opening> prepare(const op::Begin& begin);
    // A backend may throw while it moves cells.
    Pass finish(Opening&& opening);
    Attempt<op::CopyPrefix> prepare(const op::CopyPrefix& copy) {
        state().expect_no_pass("copy_prefix");
        return {copy, state().book.prepare_copy_prefix(copy.from, copy.to, copy.end)};
    }
    void finish(op::CopyPrefix&& copy) noexcept;
    Attempt<detail::Removal> prepare(const op::Remove& remove);
    Attempt<detail::Removal> prepare(const op::Rewind& rewind) {
        state().expect_no_pass("rewind");
        CELLAR_EXPECTS(rewind.to.value >= 0, "rewind: position ", rewind.to, ", expected 0 or more");
        if (!state().holds_inputs)
            if (const Result<void> can = state().book.check_rewind(rewind.sequence, rewind.to); !can)
                return can.error();
        return prepare(op::Remove{rewind.sequence, rewind.to, to_end});
    }
    void finish(detail::Removal&& removal) noexcept;
    Result<detail::PageForming> prepare(const op::FormPages& pages);
    void finish(detail::PageForming&& forming) noexcept;
    Result<detail::Defragmentation> prepare(const op::Defragment&) { return prepare_defragment(); }
    // A backend may throw, as for a pass.
    void finish(detail::Defragmentation&& defragmentation) { carry_out(defragmentation); }
    auto prepare(const op::Snapshot& snapshot) { return snapshots().prepare(snapshot); }
    Attempt<op::Promise> prepare(const op::Promise& promise) {
        state().expect_no_pass("promise");
        return {promise, state().book.prepare_promise(promise.sequence, promise.tokens)};
    }
    void finish(op::Promise&& promise) noexcept { state().book.finish_promise(promise.sequence, promise.tokens); }
    auto prepare(const op::Schedule& schedule) { return snapshots().prepare(schedule); }
    auto prepare(const op::Unschedule& schedule) { return snapshots().prepare(schedule); }
    template <template <class> class Operation>
    auto prepare(const Operation<CellSnapshot>& operation) {
        return snapshots().prepare(operation);
    }
    template <class Prepared>
    auto finish(Prepared&& prepared) noexcept {
        return snapshots().finish(std::forward<Prepared>(prepared));
    }

    /// For prefix trees, as the next three: see `detail::can_restore`.
    bool can_restore(const CellSnapshot& snapshot, Position to) const {
        if (state().holds_inputs) return snapshot.from() <= to && to <= snapshot.to();
        return state().book.can_restore(snapshot.kept_in(table().snapshots(), "restore"), to);
    }
    /// True if cells become free when the snapshot goes.
    bool frees_cells(const CellSnapshot& snapshot) const {
        return table().snapshots().frees_cells(snapshot.kept_in(table().snapshots(), "restore"));
    }
    /// The same for several snapshots, and for what s shares with them.
    template <class ForEach>
    bool frees_together(ForEach for_each, Sequence s) {
        detail::KeptTable& kept = state().book.snapshots();
        const auto each = [&](auto visit) {
            for_each([&](const CellSnapshot& snapshot) { visit(snapshot.kept_in(kept, "restore")); });
        };
        return kept.frees_together(each, s.value < 0 ? nullptr : &table().record(s).runs);
    }
    void set_evictable(CellSnapshot& snapshot, bool evictable) noexcept {
        auto& kept = state().book.snapshots();
        kept.set_evictable(snapshot.kept_in(kept, "evict"), evictable);
    }
    /// The bytes that the snapshot takes where it is, or once it is offloaded to that place.
    std::int64_t occupied_bytes(const CellSnapshot& snapshot, std::optional<OffloadTo> once_it_is = {}) const {
        if (snapshot.is_offloaded()) return snapshot.bytes();
        const StoredAs as = once_it_is ? state().offload_place(*once_it_is).as : StoredAs{};
        return state().stores.row_bytes(as) * snapshot.tokens();
    }

    /// For files and transfers, which are cellar's own.
    void save(const CellSnapshot& snapshot, const std::string& prefix, detail::StoredSnapshot& stored) {
        static_assert(holds_data, "save: this cache has no keys and values (its backend is NoData), expected a backend "
                                  "with memory; or write the rows of the sequence's cells yourself (visit_cells)");
        snapshots().save(snapshot, prefix, stored);
    }
    /// The same of what s will have at position `to`.
    void save_ahead(Sequence s, Position to, const std::string& prefix, detail::StoredSnapshot& stored) {
        static_assert(holds_data, "send_ahead: this cache has no keys and values (its backend is NoData), expected a "
                                  "backend with memory");
        snapshots().save_ahead(s, to, prefix, stored);
    }
    detail::Checked<typename detail::CellSnapshots<State>::Loaded> prepare(const detail::Load& load) {
        static_assert(holds_data,
                      "load: this cache has no keys and values (its backend is NoData), expected a backend "
                      "with memory; or begin a pass of the tokens, and write the rows of its cells yourself");
        return snapshots().prepare(load);
    }

protected:
    friend struct MemoryAccess;
    friend class CellRoom<Cache>;

    // With room for another run of each of these sequences. Neither is inlined into every call of `begin`.
    template <class... Sequences>
    [[gnu::noinline]] detail::Defragmentation prepare_defragment(const Sequences&... sequences) {
        state().expect_no_pass("defragment");
        detail::Defragmentation defragmentation = state().book.table().prepare_defragment(sequences...);
        state().reserve_plan(defragmentation.cells(), 0);
        return defragmentation;
    }
    [[gnu::noinline]] void carry_out(detail::Defragmentation& defragmentation) {
        if constexpr (holds_data) state().carry_out(defragmentation.plan());
        state().book.table().finish_defragment(defragmentation);
        if constexpr (!holds_data) state().hand_over(defragmentation.plan());
    }

    State& state(Where where = Where::current()) { return const_cast<State&>(std::as_const(*this).state(where)); }
    const State& state(Where where = Where::current()) const {
        return detail::expect_not_moved(state_, "cache", where);
    }
    const detail::CellTable& table(Where where = Where::current()) const { return state(where).book.table(); }
    detail::CellSnapshots<State> snapshots() { return detail::CellSnapshots<State>{state()}; }
    const detail::PositionRuns& runs(Sequence s, Where where) const {
        const detail::Caller caller{where};
        return table().record(s).runs;
    }

    std::unique_ptr<State> state_;
};

// Outside of the class they are not inline, so `extern template` leaves them, and all they call, to one file.

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
Cache<Layout, Window, Shift, Backend>::Cache(CacheShape shape, const CacheLimits& limits, const Window& window,
                                             Shift shift, Backend backend, Where where)
    : state_{[&] {
          const detail::Caller caller{where};
          return std::make_unique<State>(std::move(shape), limits, window, std::move(shift), std::move(backend));
      }()} {}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
auto Cache<Layout, Window, Shift, Backend>::prepare(const op::Begin& begin) -> Attempt<Opening> {
    const Batch& batch = begin.batch;
    state().expect_no_pass("begin");
    const Result<bool> prepared = state().book.prepare_open(batch);
    if (!prepared) return prepared.error();
    bool allocated = *prepared;
    allocated |= state().allocate_for(batch);
    Opening opening{batch};
    if (limits().placement == Placement::contiguous && state().book.is_too_scattered_for(batch)) {
        allocated = true;
        opening.defragmentation = std::make_unique<detail::Defragmentation>(prepare_defragment(batch.sequences));
    }
    return {std::move(opening), allocated};
}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
auto Cache<Layout, Window, Shift, Backend>::finish(Opening&& opening) -> Pass {
    auto& book = state().book;
    if (opening.defragmentation) carry_out(*opening.defragmentation);
    book.open(opening.batch);
    return Pass{state(), opening.batch.tokens(), book.pass().history, false};
}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
auto Cache<Layout, Window, Shift, Backend>::prepare(const op::Remove& remove) -> Attempt<detail::Removal> {
    using enum detail::MovedKeys;
    state().expect_no_pass("remove");
    detail::MovedKeys keys = rotates_keys<Shift> ? rotated : kept;
    std::int32_t delta = 0;
    if (rotates_keys<Shift> && remove.rotate_by) {
        const std::int32_t by = remove.rotate_by->positions;
        CELLAR_EXPECTS(by >= 0, "remove: rotate by ", by, ", expected 0 or more");
        keys = by == 0 ? kept : rotated;
        delta = -by;
    }
    auto removal = state().book.template prepare_remove<gaps>(remove.sequence, remove.begin, remove.end, keys, delta);
    if (!removal) return removal.error();
    if constexpr (gaps == detail::Gaps::closed) {
        state().allocate_for(removal->copies);
        state().reserve_plan(removal->copies, removal->rotated);
    }
    const bool allocated = removal->allocated;
    return {*std::move(removal), allocated};
}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
void Cache<Layout, Window, Shift, Backend>::finish(detail::Removal&& removal) noexcept {
    state().book.template finish_remove<gaps>(removal);
    if constexpr (!holds_data) {
        state().hand_over(removal.plan);
    } else if constexpr (Shift::possible) {
        state().carry_out(removal.plan);
    }
}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
auto Cache<Layout, Window, Shift, Backend>::prepare(const op::FormPages& pages) -> Result<detail::PageForming> {
    state().expect_no_pass("form_pages");
    CELLAR_EXPECTS(pages.page_size > 0 && 64 % pages.page_size == 0, "form_pages: a page size of ", pages.page_size,
                   ", expected a divisor of 64");
    auto forming = state().book.table().prepare_pages(pages.sequence, pages.page_size);
    if (!forming || forming->pages.empty()) return forming;
    state().allocate_below(forming->end());
    state().reserve_plan(forming->tokens, 0, forming->plans.size());
    return forming;
}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
void Cache<Layout, Window, Shift, Backend>::finish(detail::PageForming&& forming) noexcept {
    state().book.table().finish_pages(forming);
    if constexpr (holds_data) {
        for (const Plan& plan : forming.plans) state().carry_out(plan);
    } else {
        for (Plan& plan : forming.plans) state().hand_over(plan);
    }
}

template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy Shift, BackendPolicy Backend>
void Cache<Layout, Window, Shift, Backend>::finish(op::CopyPrefix&& copy) noexcept {
    state().book.finish_copy_prefix(copy.from, copy.to, copy.end);
}

} // namespace cellar
