// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/book/cell_set.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar::detail {

/// The cells of one sequence that a query sees, as a bitmap that slides along with the queries: from one token to the
/// next, only the cells whose visibility changes are touched.
class VisibleCells {
public:
    /// Set number `index` of `memory`, which needs room for the blocks of all the sequence's cells.
    VisibleCells(CellSetMemory& memory, std::int32_t index, std::int32_t sinks) : set_{memory, index}, sinks_{sinks} {}

    const CellSet& cells() const { return set_; }
    CellBounds bounds() { return set_.bounds(); }

    /// True if the set holds all cells of the sequence, which must not be empty.
    bool has_all(const PositionRuns& runs) const {
        const bool meets_sinks = window_seen_.from.value <= sinks_ && sinks_seen_.to >= window_seen_.from;
        return (meets_sinks ? sinks_seen_.from : window_seen_.from) <= runs.first() && runs.last() < window_seen_.to;
    }

    /// Afterwards the set holds the cells at positions [from, to), and those of the sinks below `to`. Costs as many
    /// words, or cells where these are scattered, as change.
    void slide(const PositionRuns& runs, Position from, Position to) {
        const std::int32_t sinks = std::min(sinks_, to.value);
        const std::int32_t begin = std::max(from.value, sinks_);
        const std::int32_t end = std::max(begin, to.value);
        if (sinks_seen_.to.value != sinks) slide(runs, sinks_seen_, {Position{0}, Position{sinks}});
        if (window_seen_.from.value != begin || window_seen_.to.value != end)
            slide(runs, window_seen_, {Position{begin}, Position{end}});
    }

    /// The sequence gets a token behind its last one, and a query at it sees positions from `from` on. Returns false,
    /// with nothing changed, unless the window merely advances from the previous query's. `runs` does not have the
    /// token yet.
    bool follow(const PositionRuns& runs, Position position, Cell cell, Position from) {
        if (position != window_seen_.to || sinks_seen_.to.value != sinks_) return false;
        const Position begin{std::max(from.value, sinks_)};
        if (begin != window_seen_.from) {
            if (begin < window_seen_.from || position < begin) return false;
            hide(runs, {window_seen_.from, begin});
            window_seen_.from = begin;
        }
        set_.add(cell);
        window_seen_.to = position + 1;
        return true;
    }

    /// The sequence gets tokens behind its last one, at [position, position + n), in cells [cell, cell + n). If
    /// everything before them is visible, they are too.
    void appended(Position position, Cell cell, std::int32_t n) {
        if (position != window_seen_.to || position < window_seen_.from || position.value < sinks_)
            return inserted(position, cell, n);
        set_.add(cell, n);
        window_seen_.to = position + n;
    }

    /// The sequence got tokens at [position, position + n), in cells [cell, cell + n).
    void inserted(Position position, Cell cell, std::int32_t n) {
        for (const Span& seen : {sinks_seen_, window_seen_}) {
            const Position begin = std::max(position, seen.from);
            const Position end = std::min(position + n, seen.to);
            if (begin < end) set_.add(cell + (begin - position), end - begin);
        }
    }

    /// Whether the cells of the sequence at position p are in the set.
    bool has(Position p) const {
        const auto is_in = [p](const Span& seen) { return seen.from <= p && p < seen.to; };
        return is_in(sinks_seen_) || is_in(window_seen_);
    }

    /// Takes a cell of the set out of it, until `put_back`, which comes before anything else.
    void leave_out(Cell cell) { set_.remove_word(word_of(cell), Word{1} << bit_of(cell)); }
    void put_back(Cell cell) { set_.add(cell); }

    /// The sequence lost these cells.
    void erased(const CellsOfWords& cells) { set_.remove(cells); }

    /// The sequence lost its tokens at [begin, end), and later ones moved down to `begin`, in the same cells.
    void gap_closed(Position begin, Position end) {
        if (window_seen_.from <= begin && end <= window_seen_.to) { // no sink has moved
            window_seen_.to = begin + (window_seen_.to - end);
        } else {
            reset();
        }
    }

    /// Positions or cells of the sequence changed: the next slide starts from an empty set.
    void reset() {
        set_.clear();
        sinks_seen_ = window_seen_ = {};
    }

    void assign(const VisibleCells& other) {
        set_.assign(other.set_);
        sinks_seen_ = other.sinks_seen_;
        window_seen_ = other.window_seen_;
    }

    /// The sequence loses its tokens from position `end` on; `runs` still has them.
    void truncate(const PositionRuns& runs, Position end) {
        slide(runs, sinks_seen_, {sinks_seen_.from, std::min(sinks_seen_.to, end)});
        slide(runs, window_seen_, {window_seen_.from, std::min(window_seen_.to, end)});
    }

private:
    struct Span {
        Position from;
        Position to;
    };

    // Not inlined, because usually there is nothing to do: appended tokens are visible already.
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
        runs.for_each_word(span.from, span.to, [&](std::int64_t at, Word cells) { set_.add_word(at, cells); });
    }

    [[gnu::noinline]] void hide(const PositionRuns& runs, Span span) {
        if (span.from >= span.to) return;
        runs.for_each_words(span.from, span.to, [&](const CellsOfWords& cells) { set_.remove(cells); });
    }

    CellSet set_;
    std::int32_t sinks_;
    // The set holds exactly the sequence's cells within these two spans, of which one that ends before it begins is
    // empty. That of the sinks begins at 0.
    Span sinks_seen_;
    Span window_seen_;
};

} // namespace cellar::detail
