// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/cell_pool.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/kept_table.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/page_forming.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/promises.hpp>
#include <cellar/book/removal.hpp>
#include <cellar/book/visible_cells.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

namespace cellar::detail {

/// The cells of one sequence, in two cache lines, because a pass reads a record for every token.
struct alignas(64) SequenceRecord {
    SequenceRecord(std::int64_t planned_runs, CellSetMemory& sets, std::int32_t index, std::int32_t sinks)
        : runs{planned_runs}, visible{sets, index, sinks} {}

    /// The position after the last token, or where the sequence was cut.
    Position next() const { return runs.empty() ? cut : std::max(runs.last() + 1, cut); }

    PositionRuns runs;
    VisibleCells visible;
    Position cut{};          ///< where tokens were cut off: the next one is not before it, whatever the window forgot
    Position expected{};     ///< of the next token of batch number `batch`, while that is checked; or the end of the
                             ///< positions of a batch that is stored in part
    std::uint32_t batch = 0; ///< the last batch that was checked and had tokens of this sequence
    bool in_pass = false;    ///< the sequence has tokens in the open pass
    bool in_order = true;    ///< these follow its last one, and one another
    bool is_whole = true;    ///< a token that follows its last one finds all that it sees
};

static_assert(sizeof(SequenceRecord) <= 128);

/// Which sequence owns which cells. The other owners are `snapshots()`. It knows neither windows nor passes;
/// `CacheBook` does.
///
/// Only operations that begin with `prepare` allocate. They change nothing visible, and `finish` cannot fail as long as
/// the table was not changed in between. Those that return a bool do not always allocate, and say whether they did.
class CellTable {
public:
    /// `planned_runs`: the runs that each sequence has room for from the start; `sinks`: first positions that are
    /// always visible; `planned_blocks`: see `CellSetMemory`.
    CellTable(Cell cells, std::int32_t sequences, Choice choice, std::int64_t planned_runs, std::int32_t sinks,
              std::int64_t planned_blocks)
        : pool_{cells, sequences, choice},
          snapshots_{pool_, sequences},
          sets_{std::make_unique<CellSetMemory>(cells, sequences, planned_blocks)},
          sequences_{static_cast<std::size_t>(sequences)},
          altered_(static_cast<std::size_t>(sequences), to_end),
          tokens_in_batch_{sequences} {
        for (std::int32_t s = 0; s < sequences; ++s) sequences_.emplace_back(planned_runs, *sets_, s, sinks);
    }
    static constexpr std::int64_t bytes_for(Cell cells, std::int32_t sequences, std::int64_t planned_runs,
                                            std::int64_t planned_blocks) {
        return CellPool::bytes_for(cells, sequences) + bytes_of<CellSetMemory>(1)
               + CellSetMemory::bytes_for(cells, sequences, planned_blocks) + bytes_of<SequenceRecord>(sequences)
               + sequences * PositionRuns::bytes_for(planned_runs) + bytes_of<Position>(sequences)
               + bytes_of<std::int32_t>(sequences);
    }

    Cell cells() const { return pool_.cells(); }
    const FreeCells& free() const { return pool_.free(); }
    const OwnerCount& owners() const { return pool_.owners(); }
    const Promises& promises() const { return pool_.promises(); }
    Promises& promises() { return pool_.promises(); }
    std::int32_t available() const { return pool_.available(); }
    const KeptTable& snapshots() const { return snapshots_; }
    KeptTable& snapshots() { return snapshots_; }
    std::int32_t sequences() const { return static_cast<std::int32_t>(sequences_.size()); }

    bool has(Sequence s) const { return s.value >= 0 && s.value < sequences(); }

    const SequenceRecord& record(Sequence s) const {
        CELLAR_EXPECTS(has(s), "sequence ", s, ", expected 0 to ", sequences() - 1);
        return sequences_[static_cast<std::size_t>(s.value)];
    }
    SequenceRecord& record(Sequence s) { return const_cast<SequenceRecord&>(std::as_const(*this).record(s)); }
    /// The same without a check, for sequences of a checked batch.
    SequenceRecord& unchecked(Sequence s) { return sequences_[static_cast<std::size_t>(s.value)]; }

    /// From this position of s on, keys and values may differ from those that a prefill of its tokens gives; `to_end`
    /// if none do.
    Position altered_from(Sequence s) const {
        const Position next = record(s).next(); // checks s
        const Position from = altered_[static_cast<std::size_t>(s.value)];
        return from < next ? from : to_end;
    }
    void set_altered(Sequence s, Position from) noexcept { altered_[static_cast<std::size_t>(s.value)] = from; }
    void alter(Sequence s, Position from) noexcept { set_altered(s, std::min(altered_from(s), from)); }

    /// From now on, the changes of each sequence are noted. May throw, with nothing changed.
    void track_changes() {
        if (changes_.empty()) changes_.resize(sequences_.size());
    }
    /// The changes of a sequence, to be cleared by the only reader; null while they are not tracked.
    RunChanges* changes(const SequenceRecord& r) {
        return changes_.empty() ? nullptr : &changes_[static_cast<std::size_t>(&r - sequences_.data())];
    }

    /// How many cells s alone owns. O(words that its cells span), or O(1) if no cells were ever shared.
    std::int32_t unshared(Sequence s) const {
        const SequenceRecord& r = record(s);
        std::int32_t count = r.runs.tokens();
        if (count == 0 || !owners().ever_shared()) return count;
        for_each_words(r, Position{0}, to_end, [&](const CellsOfWords& cells) { count -= owners().shared(cells); });
        return count;
    }
    /// How many cells would become free if all snapshots went that can be evicted.
    std::int32_t evictable() const { return pool_.evictable(); }

    /// Reserves room for tokens of these sequences, one for each mention, and for any query of them. O(n).
    [[gnu::always_inline]] bool prepare_tokens(IdSpan<Sequence> sequences) { // for every token
        const auto n = static_cast<std::int64_t>(sequences.size());
        bool has_room = sets_->is_complete();
        for (const Sequence s : sequences) has_room = has_room && unchecked(s).runs.has_room(runs_for(n));
        return !has_room && reserve_each(sequences, nullptr);
    }

    /// Reserves room for forgetting what lies between cells that are kept.
    static bool prepare_forget(SequenceRecord& r) { return r.runs.reserve(1); }

    /// Takes n free cells; see `CellPool`. `enter` names their owner.
    void take_lowest(std::int32_t n, ReservedList<Cell>& taken) { pool_.take_lowest(n, taken); }
    /// The same for tokens of this sequence that follow its last one.
    [[gnu::always_inline]] void take_by_blocks(const SequenceRecord& r, std::int32_t n, Cell* taken) {
        if (n == 1) {
            *taken = pool_.take_by_blocks(r.runs.last_cell());
        } else {
            pool_.take_by_blocks(n, r.runs.last_cell(), taken);
        }
    }
    /// See `CellPool`.
    Cell end_of_next(std::int32_t n, Cell behind) { return pool_.end_of_next(n, behind); }

    /// The sequence's tokens at [position, position + n) lie in the taken cells [cell, cell + n). Needs room in its
    /// runs.
    static void enter(SequenceRecord& r, Position position, Cell cell, std::int32_t n) {
        if (r.runs.insert(position, cell, n)) {
            r.visible.appended(position, cell, n);
        } else {
            r.visible.inserted(position, cell, n);
        }
    }

    /// The same for tokens at positions[i] in cells[i]. Neighbouring positions in neighbouring cells are entered at
    /// once, and so are equal positions.
    static void enter(SequenceRecord& r, const Position* positions, const Cell* cells, std::size_t tokens) {
        for (std::size_t first = 0, i = 0; i < tokens; first = i) {
            for (++i; i < tokens && positions[i] == positions[i - 1] + 1 && cells[i] == cells[i - 1] + 1;) ++i;
            if (i == first + 1 && i < tokens && positions[i] == positions[first]) {
                while (i < tokens && positions[i] == positions[first]) ++i;
                enter_equal(r, positions[first], cells + first, static_cast<std::int32_t>(i - first));
            } else {
                enter(r, positions[first], cells[first], static_cast<std::int32_t>(i - first));
            }
        }
    }

    /// Checks whether s can be promised that many cells, in place of those that it was promised before. Refuses with
    /// `full`. Returns true if it allocated.
    Result<bool> prepare_promise(Sequence s, std::int32_t cells) {
        static_cast<void>(record(s)); // checks s
        if (cells > available_to(s)) return full(s, cells, available_to(s));
        return cells > 0 && promises().reserve();
    }

    /// Undoes `take` and `enter` of one token.
    void take_back(Sequence s, Position position, Cell cell) {
        SequenceRecord& r = unchecked(s);
        r.runs.erase_one(position, cell);
        if (RunChanges* const noted = changes(r)) noted->add_erased(r.runs, position, position + 1);
        disown(r, {cell / word_bits, bit_range(cell % word_bits, 1)});
        promises().give(s, 1);
    }

    /// s gives up its cells at positions [from, to), if any. Needs room for one more run.
    void forget(Sequence s, Position from, Position to) { forget(record(s), from, to); }
    /// The same for rare callers. Without them, the compiler inlines `forget` where every commit calls it.
    [[gnu::noinline]] void forget_seldom(Sequence s, Position from, Position to) { forget(s, from, to); }

    /// True if n > 1 cells are free, but no n neighbouring ones. O(log cells).
    bool is_too_scattered_for(std::int32_t n) { return n > 1 && n <= free().count() && pool_.find_run(n) < 0; }

    /// Reserves room.
    bool prepare_copy_prefix(Sequence from, Sequence to) {
        const SequenceRecord& source = record(from);
        SequenceRecord& target = record(to);
        if (from == to) return false;
        bool allocated = target.runs.reserve(source.runs.runs() - target.runs.runs() + 2);
        if (sets_->is_complete()) return allocated;
        allocated |= sets_->blocks().reserve(source.visible.cells().block_count());
        allocated |= sets_->branches().reserve(source.visible.cells().block_count());
        return allocated;
    }

    /// `to` gives up its own cells and shares those of `from` below position `end`. No data moves. Nothing happens
    /// if both are the same sequence.
    void finish_copy_prefix(Sequence from, Sequence to, Position end) noexcept {
        if (from == to) return;
        const SequenceRecord& source = record(from);
        SequenceRecord& target = record(to);
        forget(target, Position{0}, to_end);
        target.runs.assign(source.runs, end);
        for_each_words(source, Position{0}, end, [&](const CellsOfWords& cells) { pool_.share(cells); });
        target.visible.assign(source.visible);
        target.visible.truncate(source.runs, end);
    }

    /// Reserves room for `finish_restore`.
    void prepare_restore(Sequence s, const KeptCells& kept) { reserve(s, kept.runs.tokens(), kept.runs.runs() + 2); }

    /// True if `runs` have a cell at positions below `kept.from` that is also a kept one below `end`: a token that was
    /// moved in place since. O(runs + cells / 64) if any sequence ever did that, else O(1). May throw.
    bool would_repeat_cells(const PositionRuns& runs, const KeptCells& kept, Position end) const {
        if (!moved_in_place_ || kept.from == Position{0}) return false;
        TrivialList<Word> own(static_cast<std::size_t>(words_for(cells())));
        Word repeated = 0;
        runs.for_each_word(Position{0}, kept.from,
                           [&](std::int64_t at, Word bits) { own[static_cast<std::size_t>(at)] |= bits; });
        kept.runs.for_each_word(
            kept.from, end, [&](std::int64_t at, Word bits) { repeated |= own[static_cast<std::size_t>(at)] & bits; });
        return repeated != 0;
    }

    /// s gives up its cells from position `kept.from` on, and shares the kept ones below `end`.
    void finish_restore(Sequence s, const KeptCells& kept, Position end) noexcept {
        SequenceRecord& r = record(s);
        forget(r, kept.from, to_end);
        kept.runs.for_each(kept.from, end, [&](Position position, Cell cell, std::int32_t n) {
            enter(r, position, cell, n);
            pool_.share(cell, n);
        });
    }

    /// Reserves room for `finish_restore_rows`. Refuses with `full`. The cells that s gives up count as free.
    Result<TrivialList<Cell>> prepare_restore_rows(Sequence s, const KeptCells& kept, Position end) {
        const PositionRuns& own = record(s).runs;
        const std::int32_t n = kept.runs.count(kept.from, end);
        if (n > available_to(s)) {
            const std::int32_t given = own.count(kept.from, to_end) - count_shared(own, kept.from, to_end);
            if (n > available_to(s) + given) return full(s, n, available_to(s) + given);
        }
        reserve(s, n, snapshots_.pieces_of(kept, n));
        TrivialList<Cell> cells;
        cells.reserve(static_cast<std::size_t>(n));
        return cells;
    }
    /// s gives up its cells from position `kept.from` on, and takes `cells` for the rows below `end`.
    void finish_restore_rows(Sequence s, const KeptCells& kept, Position end, TrivialList<Cell>& cells) noexcept {
        SequenceRecord& r = record(s);
        const std::int32_t n = kept.runs.count(kept.from, end);
        forget(r, kept.from, to_end);
        pool_.take(n, r.runs.last_cell(), cells);
        promises().take(s, n);
        KeptTable::for_each_piece(kept, end, cells, [&](Position position, Cell cell, std::int32_t count) {
            enter(r, position, cell, count);
        });
    }

    /// Checks positions [begin, end) of s, which are to be removed, decides whether the gap can be closed, if there is
    /// one, and reserves room for it. `delta`: by how many positions keys are then rotated; 0: by the gap's length.
    /// `forgotten(visit)` calls visit(span) for what s gives up besides if it closes a gap. Refuses with `cannot_shift`
    /// and `full`, before it allocates.
    template <Gaps TheGaps, class Forgotten>
    Result<Removal> prepare_remove(Sequence s, Position begin, Position end, MovedKeys keys, std::int32_t delta,
                                   const Forgotten& forgotten) {
        CELLAR_EXPECTS(begin.value >= 0 && begin <= end, "remove: positions [", begin, ", ", end,
                       "), expected 0 <= begin <= end");
        PositionRuns& runs = record(s).runs;
        const bool nothing = runs.empty() || runs.last() < begin;
        Removal removal{.sequence = s, .begin = begin, .end = nothing ? begin : end, .keys = keys};
        removal.delta = delta == 0 ? begin - end : delta;
        removal.empties = begin < end && (begin == Position{0} || (!nothing && begin <= runs.first()))
                          && (runs.empty() || runs.last() < end);
        if (removal.end == begin) return removal;
        if (runs.last() < end) {
            removal.end = to_end;
            removal.allocated = runs.reserve(1);
        }
        if (!removal.closes_gap()) return removal;
        if constexpr (TheGaps == Gaps::closed) {
            if (const Result<void> can = prepare_gap(removal, forgotten); !can) return can.error();
            return removal;
        } else {
            return Reason::cannot_shift;
        }
    }
    /// Fills in the removal's plan, if it closes a gap: the cells to copy and the keys to rotate.
    template <Gaps TheGaps>
    void finish_remove(Removal& removal) noexcept {
        if constexpr (TheGaps == Gaps::closed)
            if (removal.closes_gap()) return close_gap(unchecked(removal.sequence), removal);
        if (removal.begin != removal.end) forget(unchecked(removal.sequence), removal.begin, to_end);
    }

    /// Which tokens of s must move so that its cells form pages, and where to. Refuses with `no_pages` if positions are
    /// missing or repeated, and with `full`.
    Result<PageForming> prepare_pages(Sequence s, std::int32_t size) {
        const PositionRuns& runs = record(s).runs;
        PageForming forming{.sequence = s, .size = size};
        if (!runs.empty() && runs.last() - runs.first() + 1 != runs.tokens())
            return Refusal{.reason = Reason::no_pages, .sequence = s};
        BrokenPages{owners(), free(), forming}.find(runs);
        if (forming.pages.empty()) return forming;
        if (!find_rooms(runs, forming)) return Refusal{.reason = Reason::full, .sequence = s};
        forming.reserve_plans();
        reserve(s, forming.tokens, 2 * std::int64_t{forming.tokens} + 2 * std::ssize(forming.pages) + 2);
        return forming;
    }
    /// Fills in the plans.
    void finish_pages(PageForming& forming) noexcept {
        SequenceRecord& r = unchecked(forming.sequence);
        for (const auto& [page, room, plan] : forming.pages) {
            const Position end = page + forming.size;
            const Position from = std::max(page, r.runs.first());
            const std::int32_t n = std::min(end, r.runs.last() + 1) - from;
            TrivialList<Move>& moves = forming.plans[static_cast<std::size_t>(plan)].moves;
            r.runs.for_each(page, end, [&, first = page, to = room](Position p, Cell cell, std::int32_t count) {
                moves.push_back({cell, to + (p - first), count});
            });
            promises().take(forming.sequence, n); // before it gets back what the tokens leave
            forget(r, page, end);
            pool_.take({room + (from - page), n});
            enter(r, from, room + (from - page), n);
        }
    }

    /// The fewest moves that bring the n cells in use to [0, n). All targets are free cells, so until `finish` the
    /// moves may be carried out partly, or more than once, without harm.
    Defragmentation prepare_defragment() {
        Defragmentation defragmentation = pool_.prepare_defragment();
        for (SequenceRecord& r : sequences_) r.runs.reserve(defragmentation.splits(r.runs));
        snapshots_.prepare_defragment(defragmentation);
        return defragmentation;
    }

    /// The same, and afterwards `prepare_tokens` of these sequences is done.
    Defragmentation prepare_defragment(IdSpan<Sequence> sequences) {
        Defragmentation defragmentation = prepare_defragment();
        reserve_each(sequences, &defragmentation);
        return defragmentation;
    }

    /// Records that the moves were carried out.
    void finish_defragment(const Defragmentation& defragmentation) noexcept {
        if (defragmentation.moves().empty()) return;
        pool_.finish_defragment(defragmentation);
        for (RunChanges& noted : changes_) noted.add(Position{0});
        for (SequenceRecord& r : sequences_) {
            defragmentation.relocate(r.runs);
            r.visible.reset();
        }
        snapshots_.finish_defragment(defragmentation);
    }

private:
    template <class Forgotten>
    Result<void> prepare_gap(Removal& removal, const Forgotten& forgotten) {
        PositionRuns& runs = unchecked(removal.sequence).runs;
        const Position begin = removal.begin;
        const Position end = removal.end;
        if (removal.keys == MovedKeys::rotated) {
            removal.copies = count_shared(runs, end, to_end);
            removal.rotated = runs.count(end, to_end);
            forgotten([&](PositionSpan span) {
                removal.copies -= count_shared(runs, std::max(span.begin, end), span.end);
                removal.rotated -= runs.count(std::max(span.begin, end), span.end);
            });
        }
        const std::int32_t room = available_to(removal.sequence);
        if (removal.copies > room) { // removed cells without another owner become free in time
            const auto unshared = [&](Position from, Position to) {
                return runs.count(from, to) - count_shared(runs, from, to);
            };
            std::int32_t dropped = unshared(begin, end);
            forgotten([&](PositionSpan span) { dropped += unshared(span.begin, span.end); });
            if (removal.copies > room + dropped) return full(removal.sequence, removal.copies, room + dropped);
        }
        forgotten([&](PositionSpan span) { removal.forgotten.push_back(span); });
        const auto divided = static_cast<std::int64_t>(removal.forgotten.size());
        const std::int64_t most = runs.runs() + divided + 2 * std::int64_t{removal.copies} + 1;
        removal.allocated = true; // also for the room that the backend needs for the plan
        removal.reserve(most);
        runs.reserve(removal.copies == 0 ? divided + 1 : most);
        return {};
    }

    // Finds rooms for all pages. False if there are too few.
    bool find_rooms(const PositionRuns& runs, PageForming& forming) {
        PageRooms rooms{free(), cells(), forming.size, std::ssize(forming.pages)};
        TrivialList<Cell> freed;
        std::int32_t copies = 0;
        int plan = 0;
        for (FormedPage& page : forming.pages) {
            page.room = rooms.take();
            if (page.room < 0 && freed.empty()) {
                freed = rooms.freed();
                if (freed.empty()) return false;
                ++plan;
            }
            if (page.room < 0) {
                page.room = freed.back();
                freed.pop_back();
            }
            page.plan = plan;
            const Position end = page.first + forming.size;
            copies += count_shared(runs, page.first, end);
            runs.for_each_word(page.first, end,
                               [&](std::int64_t at, Word cells) { rooms.give(at, cells & ~owners().shared_in(at)); });
        }
        return copies <= available_to(forming.sequence);
    }

    [[gnu::cold]] static Refusal full(Sequence s, std::int64_t needed, std::int64_t available) {
        return {.reason = Reason::full, .sequence = s, .needed = needed, .available = available};
    }

    // Free cells that s may take.
    std::int32_t available_to(Sequence s) const { return available() + promises().cells(s); }
    Sequence sequence_of(const SequenceRecord& r) const {
        return Sequence{static_cast<std::int32_t>(&r - sequences_.data())};
    }

    // Room for n more tokens of s, in `runs` runs, once some of its own are forgotten.
    void reserve(Sequence s, std::int32_t n, std::int64_t runs) {
        SequenceRecord& r = record(s);
        r.runs.reserve(runs + 1);
        if (sets_->is_complete()) return;
        const std::int64_t tokens = std::int64_t{r.runs.tokens()} + n;
        sets_->blocks().reserve(sets_->max_blocks(tokens, r.runs.runs() + runs));
        sets_->branches().reserve(sets_->max_branches(tokens, r.runs.runs() + runs));
    }

    // The runs that n tokens can add to a sequence.
    static std::int64_t runs_for(std::int64_t n) { return 2 * n + 1; }

    // The same as prepare_tokens, with no more room for a sequence than its own tokens need. `before`: null, or the
    // moves that are carried out first.
    [[gnu::noinline]] bool reserve_each(IdSpan<Sequence> sequences, const Defragmentation* before) {
        const struct Count {
            ~Count() { // also if there is no memory
                for (const Sequence s : sequences) tokens[s.value] = 0;
            }
            IdSpan<Sequence> sequences;
            ZeroedArray<std::int32_t>& tokens;
        } count{sequences, tokens_in_batch_};
        auto blocks = static_cast<std::int64_t>(sequences.size());
        std::int64_t branches = blocks;
        bool allocated = false;
        for (const Sequence s : sequences) ++tokens_in_batch_[s.value];
        for (const Sequence s : sequences) {
            const std::int32_t tokens = std::exchange(tokens_in_batch_[s.value], 0);
            if (tokens == 0) continue; // not its first mention
            SequenceRecord& r = unchecked(s);
            const std::int64_t more = before == nullptr ? 0 : before->splits(r.runs);
            allocated |= r.runs.reserve(runs_for(tokens) + more);
            const CellSet& set = r.visible.cells();
            blocks += sets_->max_blocks(r.runs.tokens(), r.runs.runs() + more) - set.block_count();
            branches += sets_->max_branches(r.runs.tokens(), r.runs.runs() + more);
        }
        if (sets_->is_complete()) return allocated;
        allocated |= sets_->blocks().reserve(blocks);
        allocated |= sets_->branches().reserve(branches);
        return allocated;
    }

    // Not inlined, because equal positions are rare.
    [[gnu::noinline]] static void enter_equal(SequenceRecord& r, Position position, const Cell* cells, std::int32_t n) {
        enter(r, position, cells[0], 1);
        r.runs.insert_again(position, cells + 1, n - 1);
        for (std::int32_t i = 1; i < n; ++i) r.visible.inserted(position, cells[i], 1);
    }

    void forget(SequenceRecord& r, Position from, Position to) {
        disown(r, from, to);
        r.runs.erase(from, to);
        if (RunChanges* const noted = changes(r)) noted->add_erased(r.runs, from, to);
    }

    void disown(SequenceRecord& r, Position from, Position to) {
        if (r.runs.empty()) return;
        const std::int32_t free_before = free().count();
        if (from <= r.runs.first() && r.runs.last() < to) {
            for_each_words(r, from, to, [&](const CellsOfWords& cells) { pool_.give(cells); });
            r.visible.reset();
        } else {
            r.runs.for_each_words(from, to, [&](const CellsOfWords& cells) { disown(r, cells); });
        }
        promises().give(sequence_of(r), free().count() - free_before);
    }

    // Visits the cells of a sequence at positions [from, to) as bits of words. Sequences that decode in turn have runs
    // of one: then the bitmap is faster to read than the runs, provided that all cells are visible.
    template <class Visit>
    static void for_each_words(const SequenceRecord& r, Position from, Position to, Visit visit) {
        const bool short_runs = r.runs.tokens() < word_bits * r.runs.runs();
        if (short_runs && from <= r.runs.first() && r.runs.last() < to && r.visible.has_all(r.runs)) {
            r.visible.cells().for_each_word([&](std::int64_t at, Word cells) { visit(CellsOfWords{at, cells}); });
        } else {
            r.runs.for_each_words(from, to, visit);
        }
    }

    void disown(SequenceRecord& r, const CellsOfWords& cells) {
        r.visible.erased(cells);
        pool_.give(cells);
    }

    std::int32_t count_shared(const PositionRuns& runs, Position from, Position to) const {
        return pool_.count_shared(runs, from, to);
    }

    // Removes positions [begin, end) and moves the later ones down to `begin`. If their keys must be rotated, cells
    // that other sequences share are copied first, so that those sequences keep theirs.
    void close_gap(SequenceRecord& r, Removal& removal) {
        const Position begin = removal.begin;
        if (RunChanges* const noted = changes(r)) noted->add(begin);
        for (const PositionSpan& span : removal.forgotten) forget(r, span.begin, span.end);
        disown(r, begin, removal.end);
        r.runs.close_gap(begin, removal.end);
        r.visible.gap_closed(begin, removal.end);
        moved_in_place_ = moved_in_place_ || removal.keys == MovedKeys::kept;
        if (removal.copies != 0) copy_shared(r, removal);
        if (removal.keys != MovedKeys::rotated) return;
        r.runs.for_each(begin, to_end, [&](Position, Cell cell, std::int32_t n) {
            add_rotation(removal.plan, {cell, n, removal.delta});
        });
    }

    // Replaces the shared cells behind the gap by copies.
    void copy_shared(SequenceRecord& r, Removal& removal) {
        r.runs.relocate(removal.begin, 2 * std::int64_t{removal.copies} + 1, [&](Cell cell, std::int32_t n) {
            const std::int32_t count = pool_.uniform(cell, n);
            if (!pool_.is_shared(cell)) return CellRange{cell, count};
            const std::int32_t copied = pool_.copy(cell, count, removal.plan);
            return CellRange{removal.plan.moves.back().to, copied};
        });
        r.visible.reset();
        promises().take(removal.sequence, removal.copies);
    }

    static void add_rotation(Plan& plan, KeyRotation rotation) {
        if (!plan.rotations.empty() && plan.rotations.back().first + plan.rotations.back().count == rotation.first) {
            plan.rotations.back().count += rotation.count;
        } else {
            plan.rotations.push_back(rotation);
        }
    }

    CellPool pool_;
    KeptTable snapshots_;
    std::unique_ptr<CellSetMemory> sets_; // at a fixed address, for the records
    ReservedList<SequenceRecord> sequences_;
    TrivialList<Position> altered_;             // of each sequence
    TrivialList<RunChanges> changes_;           // of each sequence; empty while they are not tracked
    bool moved_in_place_ = false;               // a cell may have another position in a snapshot than in a sequence
    ZeroedArray<std::int32_t> tokens_in_batch_; // scratch memory of reserve_each
};

} // namespace cellar::detail
