// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/list_rows.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cellar::detail {

/// What a row of cells has: the sinks at positions below sinks_to, and all tokens at [from, to).
struct CellRow {
    Position seen_from; ///< by the batch
    Position seen_to;
    Position sinks_to{0};
    Position from{0};
    Position to{0};
    std::int32_t sinks = 0; ///< how many entries are sinks
    Position changed{0};    ///< see `take_change`
};

/// For each sequence, the cells that a batch sees, in the order of positions: its sinks, then its window. A row is
/// brought up to date for the batches that need it. Tokens after the last one are appended, and tokens that left the
/// window are dropped at the front. Other changes of the sequence rebuild the row from there on.
class CellRows final : public ListRows<CellRow, 2, 2> {
public:
    static constexpr const char* name = "lists"; ///< in messages

    static_assert(columns == counts + 1);

    using ListRows::ListRows;

    /// Brings the rows of the book's open pass up to date. The book's table must track changes. May throw; then the
    /// next call goes on.
    template <class Book>
    void update(Book& book) {
        clear_batch();
        const auto& pass = book.pass();
        for (const Sequence s : pass.distinct_sequences) {
            CellRow& row = state(s);
            row.seen_from = to_end;
            row.seen_to = Position{0};
        }
        for (std::size_t i = 0; i < pass.positions.size(); ++i) {
            CellRow& row = state(pass.sequences[i]);
            row.seen_from = std::min(row.seen_from, book.visible_from(i));
            row.seen_to = std::max(row.seen_to, book.visible_to(i));
        }
        const Position sinks{book.window().sinks()};
        for (const Sequence s : pass.distinct_sequences) {
            update(s, book.runs(s), book.changes(s), sinks);
        }
        for (const Sequence s : pass.distinct_sequences) add_to_batch(s); // the table moves if a row outgrows it
    }

    /// The positions of the entries of s.
    std::span<const std::int32_t> positions(Sequence s) const { return entries(s, 1); }

    /// Entries of s at positions from here on changed since the last call for s.
    Position take_change(Sequence s) { return std::exchange(state(s).changed, to_end); }

private:
    void update(Sequence s, const PositionRuns& runs, RunChanges& changes, Position all_sinks) {
        CellRow& row = state(s);
        const Position sinks_to = std::min(all_sinks, row.seen_to);
        const Position from = std::max(row.seen_from, sinks_to);
        // A token that is appended later must not lie within the row.
        const Position end = runs.empty() ? Position{0} : runs.last() + 1;
        const Position to = std::max(from, std::min(row.seen_to, end));

        trim(s, sinks_to, from, to, changes);
        changes.clear();
        if (row.sinks_to != sinks_to) {
            append_tokens(s, runs, Position{0}, sinks_to);
            row.sinks = extent(s).size();
            row.sinks_to = sinks_to;
        }
        append_tokens(s, runs, row.to, to);
        row.to = to;
    }

    // Keeps what is right and still seen. Afterwards nothing depends on the changes.
    void trim(Sequence s, Position sinks_to, Position from, Position to, const RunChanges& changes) {
        CellRow& row = state(s);
        Position right = std::min({row.to, to, changes.from});
        if (changes.erased_to > from) right = std::min(right, changes.erased_from);
        const bool loses_sinks = changes.from < sinks_to || changes.erased_from < sinks_to;
        if (loses_sinks || sinks_to != row.sinks_to || from < row.from || right <= from) return restart(s, from);
        const RowExtent& own = extent(s);
        const std::int32_t* const positions = room(s, 1);
        const std::int32_t* const first = positions + own.begin + row.sinks;
        if (right < row.to) {
            const std::int32_t* const end = std::lower_bound(first, positions + own.end, right.value);
            cut(s, static_cast<std::int32_t>(end - positions));
            row.changed = std::min(row.changed, right);
            row.to = right;
        }
        if (from == row.from) return;
        const std::int32_t* kept = first;
        while (kept != positions + own.end && *kept < from.value) ++kept;
        drop(s, static_cast<std::int32_t>(kept - first), row.sinks); // the sinks follow the window
        row.from = from;
    }

    // Without entries.
    void restart(Sequence s, Position from) {
        clear(s);
        CellRow& row = state(s);
        row.sinks_to = Position{0};
        row.sinks = 0;
        row.from = row.to = from;
        row.changed = Position{0};
    }

    void append_tokens(Sequence s, const PositionRuns& runs, Position from, Position to) {
        if (from >= to) return;
        const std::int32_t n = runs.count(from, to);
        make_room(s, n);
        const RowExtent& own = extent(s);
        std::int32_t* cells = room(s, 0) + own.end;
        std::int32_t* positions = room(s, 1) + own.end;
        runs.for_each(from, to, [&](Position position, Cell cell, std::int32_t count) {
            for (std::int32_t i = 0; i < count; ++i) {
                *cells++ = cell + i;
                *positions++ = position.value + i;
            }
        });
        append(s, n);
    }
};

} // namespace cellar::detail
