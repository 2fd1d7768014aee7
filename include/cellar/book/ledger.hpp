// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/removal.hpp>
#include <cellar/book/sequence_record.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cellar {

/// Which cells each sequence owns, and which nobody does. It knows nothing of windows and passes: `Book` does.
///
/// Only verbs that begin with `prepare` allocate. They change nothing that can be seen, and what they prepared is finished
/// without a failure as long as the ledger was not changed in between.
class Ledger {
public:
    /// `share`: the runs that one sequence is planned to have; `pinned`: first positions that are always seen.
    Ledger(Cell cells, std::int32_t sequences, std::int64_t share, std::int32_t pinned)
        : cells_{cells}, free_{cells}, owners_{cells, sequences} {
        sequences_.reserve(static_cast<std::size_t>(sequences));
        for (std::int32_t s = 0; s < sequences; ++s) sequences_.emplace_back(cells, share, pinned);
    }

    Cell cells() const { return cells_; }
    const FreeCells& free() const { return free_; }
    const OwnerCount& owners() const { return owners_; }
    std::int32_t sequences() const { return static_cast<std::int32_t>(sequences_.size()); }

    bool has(Sequence s) const { return s.value >= 0 && s.value < sequences(); }

    const detail::SequenceRecord& record(Sequence s) const {
        CELLAR_EXPECTS(has(s), "sequence ", s, ", expected 0 to ", sequences() - 1);
        return sequences_[static_cast<std::size_t>(s.value)];
    }
    detail::SequenceRecord& record(Sequence s) {
        return const_cast<detail::SequenceRecord&>(std::as_const(*this).record(s));
    }
    /// The same, not checked: for those of a batch that was.
    detail::SequenceRecord& known(Sequence s) { return sequences_[static_cast<std::size_t>(s.value)]; }

    /// Takes n free cells, in ascending order: the lowest run of n, else the n lowest. Each has an owner from now on,
    /// whom `enter` names. `taken` is empty before. O(n log cells).
    void take(std::int32_t n, std::vector<Cell>& taken) {
        if (n == 0) return;
        const Cell run = n == 1 ? free_.lowest() : free_.find_run(n);
        if (run >= 0) {
            taken.resize(static_cast<std::size_t>(n));
            std::iota(taken.begin(), taken.end(), run);
            free_.take(run, n);
            owners_.add(run, n);
        } else {
            for (Cell cell = free_.next(0); n > 0; --n, cell = free_.next(cell + 1)) {
                free_.take(cell, 1);
                owners_.add(cell, 1);
                taken.push_back(cell);
            }
        }
    }

    /// The taken cells [cell, cell + n) hold a sequence's tokens at [position, position + n). Needs room in its runs.
    static void enter(detail::SequenceRecord& r, Position position, Cell cell, std::int32_t n) {
        if (r.runs.insert(position, cell, n)) {
            r.visible.appended(position, cell, n);
        } else {
            r.visible.inserted(position, cell, n);
        }
    }

    /// The same for tokens at positions[i], in cells[i]; neighbouring positions in neighbouring cells in one go.
    static void enter(detail::SequenceRecord& r, std::span<const Position> positions, std::span<const Cell> cells) {
        for (std::size_t first = 0, i = 0; i < positions.size(); first = i) {
            for (++i; i < positions.size() && positions[i] == positions[i - 1] + 1 && cells[i] == cells[i - 1] + 1;)
                ++i;
            enter(r, positions[first], cells[first], static_cast<std::int32_t>(i - first));
        }
    }

    /// Undoes `take` and `enter` of one token.
    void take_back(Sequence s, Position position, Cell cell) {
        detail::SequenceRecord& r = known(s);
        r.runs.erase_one(position, cell);
        disown(r, cell / detail::word_bits, detail::bit_range(cell % detail::word_bits, 1));
    }

    /// s no longer owns its cells at positions [from, to). Needs room for one more run.
    void forget(Sequence s, Position from, Position to) { forget(record(s), from, to); }

    /// True if n cells, more than one, are free, but not side by side. O(log cells).
    bool is_too_scattered_for(std::int32_t n) { return n > 1 && n <= free_.count() && free_.find_run(n) < 0; }

    /// Checks, and makes room.
    void prepare_copy_prefix(Sequence from, Sequence to, std::int32_t length) {
        CELLAR_EXPECTS(length >= 0, "copy_prefix: the length is ", length, ", expected 0 or more");
        const detail::SequenceRecord& source = record(from);
        detail::SequenceRecord& target = record(to);
        if (from != to) target.runs.reserve(source.runs.runs() - target.runs.runs() + 2);
    }

    /// `to` gets the cells of `from` below position `length` in place of its own; no data moves. If both are the same
    /// sequence nothing happens.
    void finish_copy_prefix(Sequence from, Sequence to, std::int32_t length) noexcept {
        if (from == to) return;
        const detail::SequenceRecord& source = record(from);
        detail::SequenceRecord& target = record(to);
        forget(target, {0}, end_of_time);
        target.runs.assign(source.runs, {length});
        for_each_word(source, {0}, {length}, [&](std::int64_t at, detail::Word cells) { owners_.add_word(at, cells); });
        target.visible.assign(source.visible);
        target.visible.truncate(source.runs, {length});
    }

    /// Decides whether positions [begin, end) of s can be dropped and the gap be closed, and makes room for it.
    Result<void> prepare_remove(Sequence s, Position begin, Position end, MovedKeys keys, detail::Removal& removal) {
        CELLAR_EXPECTS(begin.value >= 0 && begin <= end, "remove: positions [", begin, ", ", end,
                       "), expected 0 <= begin <= end");
        PositionRuns& runs = record(s).runs;
        const bool nothing = runs.empty() || runs.last() < begin;
        removal.start(s, begin, nothing ? begin : end, keys);
        if (removal.end == begin) return {};
        if (runs.last() < end) {
            removal.end = end_of_time;
            runs.reserve(1);
            return {};
        }
        if (keys == MovedKeys::refused) return Refusal::cannot_shift;
        if (keys == MovedKeys::turned) removal.copies = count_shared(runs, end, end_of_time);
        if (removal.copies > free_.count()) { // what is dropped and nobody else owns will be free too
            const std::int32_t dropped = count_tokens(runs, begin, end) - count_shared(runs, begin, end);
            if (removal.copies > free_.count() + dropped) return Refusal::full;
        }
        const std::int64_t most = runs.runs() + 2 * std::int64_t{removal.copies} + 1;
        removal.reserve(most);
        runs.reserve(removal.copies == 0 ? 1 : most);
        return {};
    }

    /// Its plan says which keys the memory has to copy and turn.
    void finish_remove(detail::Removal& removal) noexcept {
        detail::SequenceRecord& r = record(removal.sequence);
        if (removal.begin == removal.end) return;
        if (removal.end == end_of_time) {
            forget(r, removal.begin, end_of_time);
        } else {
            close_gap(r, removal);
        }
    }

    /// The fewest moves of cells after which those in use are [0, n), neighbours joined. All go to free cells: as long as
    /// it is not finished, they may be carried out in part, or again.
    Defragmentation prepare_defragment() {
        Defragmentation defragmentation{free_, cells_};
        for (detail::SequenceRecord& r : sequences_) r.runs.reserve(defragmentation.most_cuts(r.runs));
        return defragmentation;
    }

    /// The tokens lie from now on where the moves brought them.
    void finish_defragment(const Defragmentation& defragmentation) noexcept {
        if (defragmentation.moves().empty()) return;
        owners_.transfer(defragmentation.moves());
        free_.pack(cells_ - free_.count(), cells_);
        for (detail::SequenceRecord& r : sequences_) {
            defragmentation.relocate(r.runs);
            r.visible.reset();
        }
    }

private:
    void forget(detail::SequenceRecord& r, Position from, Position to) {
        disown(r, from, to);
        r.runs.erase(from, to);
    }

    void disown(detail::SequenceRecord& r, Position from, Position to) {
        for_each_word(r, from, to, [&](std::int64_t at, detail::Word cells) { disown(r, at, cells); });
    }

    // The cells of a sequence at positions [from, to), as bits of words. Read off the visible ones, if these are all and
    // runs are short: cells that came in turn with those of others are runs of one.
    template <class Visit>
    static void for_each_word(const detail::SequenceRecord& r, Position from, Position to, Visit visit) {
        const bool short_runs = r.runs.tokens() < detail::word_bits * r.runs.runs();
        if (short_runs && from <= r.runs.first() && r.runs.last() < to && r.visible.has_all(r.runs)) {
            r.visible.cells().for_each_word(visit);
        } else {
            r.runs.for_each_word(from, to, visit);
        }
    }

    void disown(detail::SequenceRecord& r, std::int64_t at, detail::Word cells) {
        r.visible.erased_word(at, cells);
        free_.give_word(at, owners_.drop_word(at, cells));
    }

    std::int32_t count_shared(const PositionRuns& runs, Position from, Position to) const {
        std::int32_t count = 0;
        runs.for_each_word(from, to,
                           [&](std::int64_t at, detail::Word cells) { count += owners_.shared_word(at, cells); });
        return count;
    }

    static std::int32_t count_tokens(const PositionRuns& runs, Position from, Position to) {
        std::int32_t count = 0;
        runs.for_each(from, to, [&](Position, Cell, std::int32_t n) { count += n; });
        return count;
    }

    // Positions [begin, end) go and the later ones move down to `begin`; of these, cells that others own too are
    // copied first, if their keys have to change, so that the others keep what they had.
    void close_gap(detail::SequenceRecord& r, detail::Removal& removal) {
        const Position begin = removal.begin;
        const std::int32_t delta = begin - removal.end;
        disown(r, begin, removal.end);
        r.runs.close_gap(begin, removal.end);
        r.visible.gap_closed(begin, removal.end);
        if (removal.copies != 0) copy_shared(r, begin, removal.later, removal.plan);
        if (removal.keys != MovedKeys::turned) return;
        r.runs.for_each(begin, end_of_time, [&](Position, Cell cell, std::int32_t n) {
            add_turn(removal.plan, {cell, n, delta});
        });
    }

    // The cells at positions `from` and behind that others own too are left to them; copies take their place.
    void copy_shared(detail::SequenceRecord& r, Position from, std::vector<detail::Piece>& pieces, Plan& plan) {
        r.runs.for_each(from, end_of_time, [&](Position p, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0, count = 0; i < n; i += count) {
                count = owners_.uniform(cell + i, n - i);
                const bool shared = owners_.is_shared(cell + i);
                if (shared) count = copy_cells(cell + i, count, plan);
                pieces.push_back({p + i, shared ? plan.moves.back().to : cell + i, count});
            }
        });
        r.runs.erase(from, end_of_time);
        for (const detail::Piece& piece : pieces) r.runs.insert(piece.position, piece.cell, piece.count);
        r.visible.reset();
    }

    // Moves the caller's ownership of up to n cells, as many as find room side by side, to fresh cells; how many.
    std::int32_t copy_cells(Cell from, std::int32_t n, Plan& plan) {
        Cell to = free_.find_run(n);
        if (to < 0) {
            to = free_.next(0);
            std::int32_t room = 1;
            while (to + room < cells_ && free_.contains(to + room)) ++room;
            n = room;
        }
        free_.take(to, n);
        owners_.add(to, n);
        detail::for_each_word(from, n, [&](std::int64_t at, detail::Word cells) { owners_.drop_word(at, cells); });
        plan.moves.push_back({from, to, n});
        return n;
    }

    static void add_turn(Plan& plan, Turn turn) {
        if (!plan.turns.empty() && plan.turns.back().first + plan.turns.back().count == turn.first) {
            plan.turns.back().count += turn.count;
        } else {
            plan.turns.push_back(turn);
        }
    }

    Cell cells_;
    FreeCells free_;
    OwnerCount owners_;
    std::vector<detail::SequenceRecord> sequences_;
};

} // namespace cellar
