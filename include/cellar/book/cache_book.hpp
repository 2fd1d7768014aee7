// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/consecutive.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/expect_batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/schedules.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/book_hash.hpp>
#include <cellar/book/cell_set.hpp>
#include <cellar/book/cell_table.hpp>
#include <cellar/book/forgetting.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/open_pass.hpp>
#include <cellar/book/removal.hpp>
#include <cellar/window/resume.hpp>
#include <cellar/window/window.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// How large a book is, and what it accepts.
struct BookSize {
    Cell cells = 0;
    std::int32_t sequences = 1;
    std::int32_t batch = 1;         ///< tokens of one pass at most
    std::int32_t padding = 1;       ///< a history ends at a multiple of this
    std::int32_t start_padding = 1; ///< and starts at one of this, a multiple of the padding; 0: at cell 0
    std::int64_t planned_runs = 0;  ///< runs of cells that a sequence has room for from the start
    std::int64_t planned_blocks =
        CellSetMemory::plan_of_blocks; ///< the same for blocks of visible cells, of all sequences
    Positions positions = Positions::any;
    Choice choice = Choice::lowest;
};

/// While it exists, the visible cells of a token lack those of its batch that are not in its branch.
class OneBranch {
public:
    OneBranch(const OpenPass& pass, std::size_t token, VisibleCells& visible)
        : pass_{pass}, token_{token}, visible_{visible} {
        pass_.for_each_in_other_branches(token_, [&](Position p, Cell cell) {
            if (visible_.has(p)) visible_.leave_out(cell);
        });
    }
    ~OneBranch() {
        pass_.for_each_in_other_branches(token_, [&](Position p, Cell cell) {
            if (visible_.has(p)) visible_.put_back(cell);
        });
    }
    OneBranch(const OneBranch&) = delete;
    OneBranch& operator=(const OneBranch&) = delete;

private:
    const OpenPass& pass_;
    std::size_t token_;
    VisibleCells& visible_;
};

/// The bookkeeping of a cache: passes, retention and visibility. `CellTable` says which sequence owns which cell; the
/// book decides when that changes. It answers in integers and plans, and knows neither elements nor memory.
///
/// Costs, with n tokens in the batch, m positions in a sequence and C cells: `open`, `commit` and `drop` are O(n log C)
/// amortised, plus, for a token inserted before others of its sequence, the runs behind it. `can_resume` is O(log m).
/// The history is found in O(C / 8192) at worst. Each scheduled position whose window has begun adds O(log m) to the
/// `commit` of its sequence's tokens, and O(runs) when the sequence's window moves past it.
template <WindowPolicy Window>
class CacheBook {
public:
    /// `window` is resolved.
    CacheBook(const BookSize& size, const Window& window)
        : size_{size},
          window_{window},
          table_{size.cells, size.sequences, size.choice, size.planned_runs, window.sinks(), size.planned_blocks},
          pass_{static_cast<std::size_t>(size.batch)},
          group_sequences_(static_cast<std::size_t>(size.batch)) {}
    const Window& window() const { return window_; }
    const CellTable& table() const { return table_; }
    /// For what concerns neither windows nor passes.
    CellTable& table() { return table_; }
    /// Which cells the snapshots own that are in place.
    KeptTable& snapshots() { return table_.snapshots(); }
    Cell cells() const { return table_.cells(); }
    const PositionRuns& runs(Sequence s) const { return table_.record(s).runs; }
    /// Of a sequence of the open pass, since they were tracked.
    RunChanges& changes(Sequence s) { return *table_.changes(table_.unchecked(s)); }
    const OpenPass& pass() const { return pass_; }
    std::uint64_t hash() const { return book_hash(table_, schedules_) + rules_hash(size_, window_); }

    /// True if every position below p that a query at p would see is still kept, and s has come so far, unless
    /// positions may have gaps. O(log m).
    bool can_resume(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "can_resume: position ", p, ", expected 0 or more");
        const SequenceRecord& r = table_.record(s);
        return p <= last_to_resume(r) && can_resume_with(window_, r.runs, p);
    }

    /// The largest q <= p with can_resume(s, q), for windows that slide or that start anew in chunks. For a window that
    /// does both it may be a smaller one. O(log m) for each gap it steps back over.
    Position resumable_prefix(Sequence s, Position p) const {
        CELLAR_EXPECTS(p.value >= 0, "resumable_prefix: position ", p, ", expected 0 or more");
        const SequenceRecord& r = table_.record(s);
        return resumable_prefix_with(window_, r.runs, std::min(p, last_to_resume(r)));
    }

    /// Refuses if s cannot go back to p.
    Result<void> check_rewind(Sequence s, Position p) const {
        if (p > last_to_resume(table_.record(s))) return not_next(s, next(s), p);
        if (!can_resume(s, p)) return cannot_resume(s, p, resumable_prefix(s, p));
        return {};
    }

    /// What keeps s's cells at positions [from, to) after `KeptTable::finish`. If a pass that ends at `to` forgets
    /// tokens, it keeps what such a pass keeps: the window and the sinks. Refuses if s cannot go back there.
    Result<KeptCellsPointer> prepare_keep(Sequence s, Position from, Position to, Resuming resuming) {
        const PositionRuns& runs = table_.record(s).runs;
        if (resuming == Resuming::anywhere) return table_.snapshots().prepare(runs, from, to, false);
        const bool forgets = to.value > 0 && window_.oldest_kept(to - 1).value > window_.sinks();
        if (const Result<void> can = check_rewind(s, to); !can) return can.error();
        prepare_unschedule(s, to);
        return table_.snapshots().prepare(runs, forgets ? Position{0} : from, to, forgets);
    }
    /// A schedule for the end of the snapshot goes on. `finish_unschedule` may follow.
    void finish_keep(Sequence s, KeptCells& kept) noexcept {
        const Position gap{kept.is_window ? window_.sinks() : 0}; // others may be scheduled before it
        table_.snapshots().finish(kept, table_.record(s).runs, gap,
                                  kept.is_window ? window_.oldest_kept(kept.to - 1) : gap);
        const Position altered = table_.altered_from(s);
        kept.altered = altered < kept.to ? std::max(altered, kept.from) : to_end;
    }

    /// Reserves room for a position of s at which a snapshot is wanted. Returns true if it allocated.
    bool prepare_schedule(Sequence s) { return forgets() && schedules_.reserve(s, size_.sequences); }
    /// From now on, s does not forget what a pass that ends with the token at p - 1 keeps.
    void finish_schedule(Sequence s, Position p) noexcept {
        if (forgets()) schedules_.add(s, p);
    }

    /// Ends the schedule at p: s forgets at once what only the schedule kept.
    bool prepare_unschedule(Sequence s, Position p) {
        SequenceRecord& r = table_.record(s);
        return schedules_.has(s, p) && CellTable::prepare_forget(r);
    }
    void finish_unschedule(Sequence s, Position p) noexcept {
        if (schedules_.remove(s, p, p)) forget_old(s);
    }

    /// Refuses with `cannot_resume` if `to` could not go on, unless positions may have gaps. Returns true if it
    /// allocated, which it does not do before it refuses.
    Result<bool> prepare_copy_prefix(Sequence from, Sequence to, Position end) {
        CELLAR_EXPECTS(end.value >= 0, "copy_prefix: up to position ", end, ", expected 0 or more");
        const bool is_another = &table_.record(from) != &table_.record(to);
        const Position p = std::min(next(from), end);
        if (is_another && size_.positions == Positions::consecutive && !can_resume(from, p))
            return cannot_resume(from, p, resumable_prefix(from, p));
        return table_.prepare_copy_prefix(from, to);
    }
    /// `to` gives up its schedules, too.
    void finish_copy_prefix(Sequence from, Sequence to, Position end) noexcept {
        if (from == to) return;
        table_.finish_copy_prefix(from, to, end);
        table_.set_altered(to, table_.altered_from(from));
        cut(to, std::min(next(from), end));
        if (schedules_.empty()) return;
        unschedule_all(to);
        forget_old(to); // which `from` may keep for its own schedules
    }

    /// See `CellTable::prepare_remove`. Also refuses with `cannot_resume` if s could not go on afterwards.
    template <Gaps TheGaps = Gaps::closed>
    Result<Removal> prepare_remove(Sequence s, Position begin, Position end, MovedKeys keys, std::int32_t delta) {
        if (size_.positions == Positions::consecutive && !can_go_on_without<TheGaps>(s, begin, end))
            return cannot_resume(s, next_without(s, begin, end), resumable_prefix(s, begin));
        const PositionRuns& runs = table_.record(s).runs; // checks s
        const auto forgotten = [&](auto visit) {
            Forgetting{window_, schedules_.of(s)}.for_each_with_gap(runs, begin, end, visit);
        };
        auto removal = table_.prepare_remove<TheGaps>(s, begin, end, keys, delta, forgotten);
        if (!removal) return removal;
        removal->next = next_without(s, begin, end);
        return removal;
    }
    /// Schedules at positions that s loses end, and those after a gap, because their positions are then those of other
    /// tokens.
    template <Gaps TheGaps = Gaps::closed>
    void finish_remove(Removal& removal) noexcept {
        if constexpr (TheGaps == Gaps::closed)
            if (removal.closes_gap()) return finish_gap(removal);
        if (removal.empties) end_all(removal.sequence);
        if (removal.begin != removal.end)
            schedules_.remove(removal.sequence, removal.begin + 1, next(removal.sequence));
        table_.finish_remove<Gaps::refused>(removal);
        cut(removal.sequence, removal.next);
    }
    /// Decides whether s can be restored at p, which lies within the snapshot, and reserves room for it. If the
    /// snapshot is offloaded, the result has room for the cells of its rows. Refuses with `cannot_resume`,
    /// `cannot_share` and `full`.
    Result<TrivialList<Cell>> prepare_restore(Sequence s, const KeptCells& kept, Position p, Resuming resuming) {
        if (const Result<void> can = check_restore(s, kept, p, resuming); !can) return can.error();
        if (!kept.is_offloaded()) {
            table_.prepare_restore(s, kept);
            return TrivialList<Cell>{};
        }
        auto cells = table_.prepare_restore_rows(s, kept, p);
        return cells;
    }
    /// s keeps no schedules, and goes on at p, whatever it has below. If the snapshot is offloaded, fills in the cells.
    void finish_restore(Sequence s, const KeptCells& kept, Position p, TrivialList<Cell>& cells) noexcept {
        unschedule_all(s);
        const Position own = table_.altered_from(s) < kept.from ? table_.altered_from(s) : to_end;
        if (kept.is_offloaded()) {
            table_.finish_restore_rows(s, kept, p, cells);
        } else {
            table_.finish_restore(s, kept, p);
        }
        table_.set_altered(s, std::min(own, kept.altered));
        cut(s, p);
    }

    /// See `CellTable::would_repeat_cells`.
    bool would_repeat_cells(const KeptCells& parent, const KeptCells& child) const {
        return table_.would_repeat_cells(parent.runs, child, child.to);
    }

    /// True if a sequence that has all tokens below `kept.from` could resume at p with the kept ones. O(log m).
    bool can_restore(const KeptCells& kept, Position p) const {
        return kept.from <= p && p <= kept.to && resumes_if(window_, p, [&](Position begin, Position end) {
                   return kept.covers(std::max(begin, kept.from), end);
               });
    }

    /// True if the batch would fit, but not in neighbouring cells.
    [[gnu::noinline]] bool is_too_scattered_for(const Batch& batch) {
        return table_.is_too_scattered_for(batch.stored_tokens());
    }

    /// The position after the last token of s, or where s was cut, if the window had forgotten what lies before.
    Position next(Sequence s) const { return table_.record(s).next(); }

    /// Checks whether a pass can be opened for this batch, and reserves room for it. Returns true if it allocated,
    /// which it does not do before it refuses. O(n).
    Result<bool> prepare_open(const Batch& batch) {
        if (const Result<void> can = check(batch); !can) return can.error();
        if (!batch.parents.empty()) expect_positions_of_tree(batch, size_.positions);
        if (size_.positions == Positions::consecutive)
            if (const Result<void> expected = expect_consecutive(batch); !expected) return expected.error();
        const std::int32_t available = table_.available();
        if (batch.stored_tokens() > available)
            if (const std::int32_t needed = cells_needed(batch); needed > available)
                return Refusal{.reason = Reason::full, .needed = needed, .available = available};
        return table_.prepare_tokens(batch.sequences);
    }

    /// How many cells must be available so that the batch fits.
    std::int32_t cells_needed(const Batch& batch) {
        if (table_.promises().cells() == 0) return batch.stored_tokens();
        expect_batch(batch, size_.sequences);
        return table_.promises().beyond(batch);
    }

    /// Checks whether s can be promised room for that many tokens: of a window that forgets, at most what it keeps and
    /// a batch. Refuses with `full`. Returns true if it allocated.
    Result<bool> prepare_promise(Sequence s, std::int32_t tokens) {
        CELLAR_EXPECTS(tokens >= 0, "promise: ", tokens, " tokens, expected 0 or more");
        return table_.prepare_promise(s, cells_for(tokens));
    }
    void finish_promise(Sequence s, std::int32_t tokens) noexcept { table_.promises().make(s, cells_for(tokens)); }

    /// Opens the pass that was prepared: the batch's tokens get cells, and belong to their sequences until `commit` or
    /// `drop`. Tokens that are not stored get none.
    void open(const Batch& batch) noexcept {
        pass_.start(batch);
        table_.promises().take(batch);
        if (pass_.in_part) return open_in_part();
        if (size_.choice == Choice::lowest) table_.take_lowest(batch.tokens(), pass_.cells);
        enter_tokens(size_.choice == Choice::blocks);
    }

    /// A cell behind all that `open` will take for this prepared batch. The room that was reserved for it may be gone
    /// then; `prepare_tokens` reserves it again.
    Cell end_of_next(const Batch& batch) {
        const std::int32_t n = batch.stored_tokens();
        if (n == 0) return 0;
        if (size_.choice == Choice::lowest) return table_.end_of_next(n, -1);
        open(batch);
        const Cell end = *std::max_element(pass_.cells.begin(), pass_.cells.end()) + 1;
        drop();
        return end;
    }

    bool prepare_tokens(const Batch& batch) { return table_.prepare_tokens(batch.sequences); }
    /// The same for the next n tokens of a sequence whose last one is in cell `behind`, or for any n if that is -1.
    Cell end_of_next(std::int32_t n, Cell behind) { return table_.end_of_next(n, behind); }

    /// `prepare_open` for a read-only pass. Its tokens get no cells.
    Result<bool> prepare_look(const Batch& batch) {
        if (const Result<void> can = check(batch); !can) return can.error();
        return table_.prepare_tokens(batch.sequences);
    }

    /// Opens the read-only pass that was prepared. `drop` ends it.
    void look(const Batch& batch) noexcept {
        pass_.start(batch);
        enter_tokens(false);
    }

    /// The tokens of the open pass stay. Tokens that fell out of their sequences' retention are forgotten.
    void commit() noexcept {
        const bool any_scheduled = !schedules_.empty();
        for (const Sequence s : pass_.distinct_sequences) {
            SequenceRecord& r = table_.unchecked(s);
            if (pass_.in_part) {
                r.in_order = true;
                r.is_whole = false; // what another memory stores is not known here
            } else if (!r.in_order || !r.is_whole) {
                note_alterations();
            }
            const Position kept = window_.oldest_kept(pass_.in_part ? newest_in_part(r) : r.runs.last());
            if (window_.sinks() >= kept.value) continue;
            any_scheduled ? forget_unscheduled(s, kept) : table_.forget(s, Position{window_.sinks()}, kept);
            // Tokens that are not stored may have hidden what was altered.
            if (pass_.in_part) table_.set_altered(s, table_.altered_from(s));
        }
        close();
    }

    /// Undoes the open pass.
    void drop() noexcept {
        for (std::size_t i = pass_.cells.size(); i-- > 0;) {
            const std::size_t token = pass_.token_in(i);
            table_.take_back(pass_.sequences[token], pass_.positions[token], pass_.cells[i]);
        }
        close();
    }

    /// A token of the open pass sees positions [visible_from, visible_to), and those of the sinks below `visible_to`.
    Position visible_from(std::size_t token) const { return window_.oldest_visible(pass_.positions[token]); }
    Position visible_to(std::size_t token) const {
        return pass_.visible_to.empty() ? pass_.positions[token] + 1 : pass_.visible_to[token];
    }

    /// Calls `visit(token, cells visible to it)` for each token of the open pass. In a tree, O(tokens) more for each.
    template <class Visit>
    void for_each_visible_row(Visit visit) {
        for (std::size_t i = 0; i < pass_.positions.size(); ++i) {
            SequenceRecord& r = table_.unchecked(pass_.sequences[i]);
            r.visible.slide(r.runs, visible_from(i), visible_to(i));
            const OneBranch branch{pass_, i, r.visible};
            visit(static_cast<std::int64_t>(i), r.visible.cells());
        }
    }

private:
    // True if a sequence with the tokens of `runs` below `kept.from`, and the kept ones from there on, can resume at p.
    bool resumes_with(const PositionRuns& runs, const KeptCells& kept, Position p) const {
        return resumes_if(window_, p, [&](Position begin, Position end) {
            return runs.covers(begin, std::min(end, kept.from)) && kept.covers(std::max(begin, kept.from), end);
        });
    }

    // The last position at which a sequence may go on.
    Position last_to_resume(const SequenceRecord& r) const {
        return size_.positions == Positions::any ? to_end : r.next();
    }

    // Where s goes on without positions [begin, end).
    Position next_without(Sequence s, Position begin, Position end) const {
        const Position before = next(s);
        return before <= begin ? before : before <= end ? begin : before - (end - begin);
    }
    // Whether s can go on there: what its next token sees lies below the gap, and behind it before it is closed. The
    // table reports a wrong range, and a gap that cannot be closed.
    template <Gaps TheGaps>
    bool can_go_on_without(Sequence s, Position begin, Position end) const {
        if (begin.value < 0 || end <= begin) return true;
        const Position p = next_without(s, begin, end);
        if (p == next(s) || (TheGaps == Gaps::refused && begin < p)) return true;
        const PositionRuns& runs = table_.record(s).runs;
        return resumes_if(window_, p, [&](Position from, Position to) {
            const std::int32_t gap = end - begin;
            return runs.covers(from, std::min(to, begin))
                   && (to <= begin || runs.covers(std::max(from, begin) + gap, to + gap));
        });
    }

    bool forgets() const { return window_.oldest_kept(to_end - 1).value > window_.sinks(); }

    // s gives up the tokens that fell out of its retention, except what its schedules keep.
    [[gnu::noinline]] void forget_old(Sequence s) {
        const PositionRuns& runs = table_.unchecked(s).runs;
        if (!runs.empty()) forget_unscheduled(s, window_.oldest_kept(runs.last()));
    }
    // What schedules keep of a window has no gaps, so at most one run of older tokens is divided. The n tokens of the
    // pass are divided in at most n places.
    [[gnu::noinline]] void forget_unscheduled(Sequence s, Position kept) {
        const PositionRuns& runs = table_.unchecked(s).runs;
        Forgetting{window_, schedules_.of(s)}.for_each_below(kept, to_end, [&](Position from, Position to) {
            if (to == kept || from < runs.end_before(to)) table_.forget_seldom(s, from, to);
        });
    }
    // s has lost its tokens from `p` on, and those before are another's now, or as they were. Where positions may have
    // gaps, a sequence goes on after its last token, and may lack what the next one sees.
    void cut(Sequence s, Position p) noexcept {
        SequenceRecord& r = table_.unchecked(s);
        if (size_.positions == Positions::consecutive) {
            r.cut = p;
        } else {
            r.is_whole = can_resume(s, r.next());
        }
        table_.set_altered(s, table_.altered_from(s));
    }

    // After tokens of the open pass came before others of their sequence, which have not seen them, or did not find all
    // that they see: for all sequences of the pass at once. O(tokens).
    [[gnu::noinline]] void note_alterations() noexcept {
        const auto is_noted = [](const SequenceRecord& r) { return !r.in_order || !r.is_whole; };
        for (const Sequence s : pass_.distinct_sequences) { // `expected` and `batch` serve checks of other caches
            table_.unchecked(s).expected = to_end;          // the first position of its tokens
            table_.unchecked(s).batch = 0;                  // and their number
        }
        for (std::size_t i = 0; i < pass_.positions.size(); ++i) {
            SequenceRecord& r = table_.unchecked(pass_.sequences[i]);
            if (!is_noted(r)) continue;
            const Position p = pass_.positions[i];
            if (!can_resume_with(window_, r.runs, p)) table_.alter(pass_.sequences[i], p);
            r.expected = std::min(r.expected, p);
            ++r.batch;
        }
        for (const Sequence s : pass_.distinct_sequences) {
            SequenceRecord& r = table_.unchecked(s);
            if (!is_noted(r)) continue;
            if (r.runs.count(r.expected, to_end) > static_cast<std::int64_t>(r.batch)) table_.alter(s, r.expected);
            r.in_order = true;
            r.is_whole = true;
        }
    }

    void finish_gap(Removal& removal) noexcept {
        table_.finish_remove<Gaps::closed>(removal);
        table_.alter(removal.sequence, removal.begin);
        cut(removal.sequence, removal.next);
        schedules_.remove(removal.sequence, removal.begin + 1, to_end);
    }

    // Whether s, with the kept tokens from `kept.from` on, can resume at p.
    Result<void> check_restore(Sequence s, const KeptCells& kept, Position p, Resuming resuming) {
        const PositionRuns& runs = table_.record(s).runs;
        if (resuming == Resuming::checked && !resumes_with(runs, kept, p)) return cannot_resume(s, p);
        if (!kept.is_offloaded() && table_.would_repeat_cells(runs, kept, p))
            return Refusal{.reason = Reason::cannot_share, .sequence = s};
        return {};
    }

    void unschedule_all(Sequence s) noexcept { schedules_.remove(s, Position{0}, to_end); }
    // s loses all its tokens.
    void end_all(Sequence s) noexcept {
        unschedule_all(s);
        table_.promises().make(s, 0);
    }

    std::int32_t cells_for(std::int32_t tokens) const {
        if (!forgets()) return tokens;
        return static_cast<std::int32_t>(std::min<std::int64_t>(tokens, window_.cells(1, 0, size_.batch)));
    }

    Result<void> check(const Batch& batch) {
        expect_batch(batch, size_.sequences);
        if (batch.tokens() > size_.batch) return batch_too_long(batch.tokens(), size_.batch);
        if (!batch.groups.empty()) expect_groups_of_one_sequence(batch);
        return {};
    }

    // Each sequence goes on from its last token, and what its next token sees is kept.
    Result<void> expect_consecutive(const Batch& batch) {
        CELLAR_EXPECTS(batch.stored_tokens() == batch.tokens(), "begin: ", batch.stored_tokens(), " of ",
                       batch.tokens(), " tokens are stored, expected all, or limits with Positions::any");
        auto checked = consecutive_.check(
            batch, size_.sequences, [&](Sequence s) -> SequenceRecord& { return table_.unchecked(s); },
            [](const SequenceRecord& r) { return r.next(); }, [&](Sequence s, Position p) { return can_resume(s, p); });
        if (checked || checked.error() != Reason::cannot_resume) return checked;
        const Sequence s = checked.error().sequence;
        return cannot_resume(s, next(s), resumable_prefix(s, next(s)));
    }

    void expect_groups_of_one_sequence(const Batch& batch) {
        std::fill_n(group_sequences_.begin(), batch.groups.size(), Sequence{-1});
        for (std::size_t i = 0; i < batch.groups.size(); ++i) {
            if (batch.groups[i] < 0) continue;
            Sequence& of_group = group_sequences_[static_cast<std::size_t>(batch.groups[i])];
            if (of_group == Sequence{-1}) of_group = batch.sequences[i];
            CELLAR_EXPECTS(of_group == batch.sequences[i], "begin: token ", i, " of sequence ", batch.sequences[i],
                           " is in group ", batch.groups[i], " of sequence ", of_group,
                           ", expected the tokens of a group to be of one sequence");
        }
    }

    // Enters the tokens into their sequences, if they have cells, and finds the history. Bounds may be taken before all
    // tokens are entered, because every token sees itself. `takes`: each sequence takes cells when its tokens are
    // entered.
    void enter_tokens(bool takes) {
        const Sequence* const sequences = pass_.sequences.data();
        const Position* const positions = pass_.positions.data();
        const std::size_t n = pass_.sequences.size();
        if (takes) pass_.cells.resize(n);
        Cell* const cells = pass_.cells.data();
        const bool are_simple = !pass_.cells.empty() && pass_.visible_to.empty();
        CellBounds visible;
        for (std::size_t i = 0, end = 0; i < n; i = end) {
            for (end = i + 1; end < n && sequences[end] == sequences[i];) ++end;
            SequenceRecord& r = table_.unchecked(sequences[i]);
            if (takes) table_.take_by_blocks(r, static_cast<std::int32_t>(end - i), cells + i);
            if (are_simple && end - i == 1 && enter_next(r, positions[i], cells[i])) {
                visible.include(r.visible.bounds());
            } else {
                visible = enter_some(r, i, end, visible);
            }
            if (r.in_pass) continue;
            r.in_pass = true;
            pass_.distinct_sequences.push_back(sequences[i]);
        }
        if (!visible.empty()) pass_.history = padded(visible);
    }

    // The cells from the lowest to the highest, extended to multiples of the paddings.
    CellRange padded(const CellBounds& bounds) const {
        const Cell first = last_multiple(bounds.lowest, size_.start_padding);
        const Cell end = last_multiple(bounds.highest, size_.padding) + size_.padding;
        return {first, end - first};
    }

    // The last multiple of n up to the cell. n is 0 or a power of two, as usual: two divisions take as long as a third
    // of a step.
    static Cell last_multiple(Cell cell, std::int32_t n) { return (n & (n - 1)) == 0 ? cell & -n : cell / n * n; }

    // The short path of a decode step: a token that directly follows its sequence's last one, and whose window advances
    // from the previous query's. Returns false, with nothing changed, for any other token.
    bool enter_next(SequenceRecord& r, Position position, Cell cell) const {
        const Position from = window_.oldest_visible(position);
        if (!r.runs.ends_before(position) || !r.visible.follow(r.runs, position, cell, from)) return false;
        r.runs.append(position, cell);
        return true;
    }

    // Enters tokens [i, end), all of one sequence. Returns `visible`, extended by what they see.
    [[gnu::noinline]] CellBounds enter_some(SequenceRecord& r, std::size_t i, std::size_t end, CellBounds visible) {
        if (!pass_.cells.empty()) enter(r, i, pass_.cells.data() + i, end - i);
        return see(r, i, end, visible);
    }

    // Enters n tokens, all of one sequence.
    void enter(SequenceRecord& r, std::size_t first, const Cell* cells, std::size_t n) {
        const Position* const positions = pass_.positions.data() + first;
        if (RunChanges* const noted = table_.changes(r))
            noted->add_inserted(r.runs, *std::min_element(positions, positions + n));
        if (size_.positions == Positions::any) r.in_order = r.in_order && r.runs.are_next(positions, n);
        CellTable::enter(r, positions, cells, n);
    }

    // Returns `visible`, extended by what tokens [i, end) of a sequence see.
    CellBounds see(SequenceRecord& r, std::size_t i, std::size_t end, CellBounds visible) {
        for_each_visible_span(i, end, [&](Position from, Position to) {
            r.visible.slide(r.runs, from, to);
            visible.include(r.visible.bounds());
        });
        return visible;
    }

    // All stored tokens are entered before any bounds are taken, because a token that is not stored does not see
    // itself.
    [[gnu::noinline]] void open_in_part() {
        const Sequence* const sequences = pass_.sequences.data();
        const std::int32_t* const stored = pass_.stored.data();
        const std::size_t n = pass_.stored.size();
        if (size_.choice == Choice::lowest) {
            table_.take_lowest(static_cast<std::int32_t>(n), pass_.cells);
        } else {
            pass_.cells.resize(n);
        }
        for (std::size_t i = 0, end = 0; i < n; i = end) {
            const auto first = static_cast<std::size_t>(stored[i]);
            const auto follows = [&] {
                return stored[end] == stored[end - 1] + 1 && sequences[stored[end]] == sequences[first];
            };
            for (end = i + 1; end < n && follows();) ++end;
            SequenceRecord& r = table_.unchecked(sequences[first]);
            Cell* const cells = pass_.cells.data() + i;
            if (size_.choice == Choice::blocks) table_.take_by_blocks(r, static_cast<std::int32_t>(end - i), cells);
            enter(r, first, cells, end - i);
        }
        CellBounds visible;
        for (std::size_t i = 0, end = 0; i < pass_.sequences.size(); i = end) {
            for (end = i + 1; end < pass_.sequences.size() && sequences[end] == sequences[i];) ++end;
            SequenceRecord& r = table_.unchecked(sequences[i]);
            visible = see(r, i, end, visible);
            if (!r.in_pass) {
                r.in_pass = true;
                r.expected = Position{0};
                pass_.distinct_sequences.push_back(sequences[i]);
            }
            const Position* const positions = pass_.positions.data();
            r.expected = std::max(r.expected, *std::max_element(positions + i, positions + end) + 1);
        }
        if (!visible.empty()) pass_.history = padded(visible);
    }

    // The newest position of a sequence of the open pass, which is stored in part.
    static Position newest_in_part(const SequenceRecord& r) {
        return r.runs.empty() ? r.expected - 1 : std::max(r.expected - 1, r.runs.last());
    }

    // Calls `visit(from, to)` for the spans of positions that tokens [i, end) see; overlapping spans are joined.
    template <class Visit>
    void for_each_visible_span(std::size_t i, std::size_t end, Visit visit) const {
        while (i < end) {
            Position from = visible_from(i);
            Position to = visible_to(i);
            for (++i; i < end && visible_from(i) <= to && from <= visible_to(i); ++i) {
                from = std::min(from, visible_from(i));
                to = std::max(to, visible_to(i));
            }
            visit(from, to);
        }
    }

    void close() {
        for (const Sequence s : pass_.distinct_sequences) {
            SequenceRecord& r = table_.unchecked(s);
            r.in_pass = false;
            r.in_order = true;
        }
    }

    BookSize size_;
    Window window_;
    CellTable table_;
    OpenPass pass_;
    Schedules schedules_;
    TrivialList<Sequence> group_sequences_; // scratch memory of expect_groups_of_one_sequence
    ConsecutiveTokens consecutive_;
};

/// What the constructor of a book allocates.
constexpr std::int64_t bytes_for_book(const BookSize& size) {
    return CellTable::bytes_for(size.cells, size.sequences, size.planned_runs, size.planned_blocks)
           + OpenPass::bytes_for(size.batch) + bytes_of<Sequence>(size.batch);
}

} // namespace cellar::detail
