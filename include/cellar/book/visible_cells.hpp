// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/book/cell_set.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

/// The cells of one sequence that a query sees, as a bitmap that slides along with the queries: from one token to the
/// next only the cells that come into sight or fall out of it are touched.
class VisibleCells {
public:
    VisibleCells(Cell cells, std::int32_t pinned) : set_{cells}, pinned_{pinned} {}

    const CellSet& cells() const { return set_; }
    CellBounds bounds() { return set_.bounds(); }

    /// True if the set holds all cells of the sequence, which has some.
    bool has_all(const PositionRuns& runs) const {
        const bool after_pinned = window_seen_.from.value <= pinned_ && pinned_seen_.to >= window_seen_.from;
        return (after_pinned ? pinned_seen_.from : window_seen_.from) <= runs.first() && runs.last() < window_seen_.to;
    }

    /// Afterwards the set holds the cells whose positions lie in [from, to), or in [0, to) and among the pinned ones.
    /// Costs as many cells (in words, where they lie together) as change their place in it.
    void slide(const PositionRuns& runs, Position from, Position to) {
        const std::int32_t pinned = std::min(pinned_, to.value);
        const std::int32_t begin = std::max(from.value, pinned_);
        const std::int32_t end = std::max(begin, to.value);
        if (pinned_seen_.to.value != pinned) slide(runs, pinned_seen_, {{0}, {pinned}});
        if (window_seen_.from.value != begin || window_seen_.to.value != end)
            slide(runs, window_seen_, {{begin}, {end}});
    }

    /// The sequence, whose runs end before, gets a token, and a query at it sees positions from `from` on. False, and
    /// nothing has changed, unless that is as much further than what the last query saw.
    bool follow(const PositionRuns& runs, Position position, Cell cell, Position from) {
        if (position != window_seen_.to || pinned_seen_.to.value != pinned_) return false;
        const Position begin{std::max(from.value, pinned_)};
        if (begin != window_seen_.from) {
            if (begin < window_seen_.from || position < begin) return false;
            hide(runs, {window_seen_.from, begin});
            window_seen_.from = begin;
        }
        set_.add(cell);
        window_seen_.to = position + 1;
        return true;
    }

    /// The sequence gets tokens behind its last, at [position, position + n), in [cell, cell + n): if all up to there is
    /// seen, the next query will see them too.
    void appended(Position position, Cell cell, std::int32_t n) {
        if (position != window_seen_.to || position.value < pinned_) return inserted(position, cell, n);
        set_.add(cell, n);
        window_seen_.to = position + n;
    }

    /// The sequence got tokens at [position, position + n), in [cell, cell + n).
    void inserted(Position position, Cell cell, std::int32_t n) {
        for (const Span& seen : {pinned_seen_, window_seen_}) {
            const Position begin = std::max(position, seen.from);
            const Position end = std::min(position + n, seen.to);
            if (begin < end) set_.add(cell + (begin - position), end - begin);
        }
    }

    /// The sequence lost these cells of word `at`.
    void erased_word(std::int64_t at, detail::Word cells) { set_.remove_word(at, cells); }

    /// The sequence has lost its tokens at [begin, end), and later ones have moved down to `begin`, in the same cells.
    void gap_closed(Position begin, Position end) {
        if (window_seen_.from <= begin && end <= window_seen_.to) { // so none of the pinned ones has moved
            window_seen_.to = begin + (window_seen_.to - end);
        } else {
            reset();
        }
    }

    /// Positions or cells of the sequence have changed: the next slide starts anew.
    void reset() {
        set_.clear();
        pinned_seen_ = window_seen_ = {};
    }

    void assign(const VisibleCells& other) {
        set_.assign(other.set_);
        pinned_seen_ = other.pinned_seen_;
        window_seen_ = other.window_seen_;
    }

    /// The sequence lost its tokens from position `end` on; `runs` still has them.
    void truncate(const PositionRuns& runs, Position end) {
        slide(runs, pinned_seen_, {pinned_seen_.from, std::min(pinned_seen_.to, end)});
        slide(runs, window_seen_, {window_seen_.from, std::min(window_seen_.to, std::max(end, window_seen_.from))});
    }

private:
    struct Span {
        Position from;
        Position to;
    };

    // Not inline, as most often there is nothing to do: what was appended is seen.
    [[gnu::noinline]] void slide(const PositionRuns& runs, Span& seen, Span next) {
        if (next.from >= seen.to || next.to <= seen.from) {
            hide(runs, seen);
            show(runs, next);
        } else {
            hide(runs, {seen.from, next.from});
            hide(runs, {next.to, seen.to});
            show(runs, {next.from, seen.from});
            show(runs, {seen.to, next.to});
        }
        seen = next;
    }

    void show(const PositionRuns& runs, Span span) {
        if (span.from >= span.to) return;
        runs.for_each_word(span.from, span.to, [&](std::int64_t at, detail::Word cells) { set_.add_word(at, cells); });
    }

    [[gnu::noinline]] void hide(const PositionRuns& runs, Span span) {
        if (span.from >= span.to) return;
        runs.for_each_word(span.from, span.to,
                           [&](std::int64_t at, detail::Word cells) { set_.remove_word(at, cells); });
    }

    CellSet set_;
    std::int32_t pinned_;
    // The set holds exactly the sequence's cells within these two spans. The first one begins at 0.
    Span pinned_seen_;
    Span window_seen_;
};

} // namespace cellar
