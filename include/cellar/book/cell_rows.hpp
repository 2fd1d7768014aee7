// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/list_rows.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/run_changes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// Rows of the batch's sequences, compressed: row r is indices[indptr[r], indptr[r + 1]).
struct CompressedRows {
    ZeroedArray<std::int32_t> indptr;
    ZeroedArray<std::int32_t> indices;

    /// May throw, with nothing changed.
    void reserve(std::int64_t entries) {
        if (entries > indices.size()) indices = ZeroedArray<std::int32_t>{std::max(entries, 2 * indices.size())};
    }

    /// Copies the rows of these sequences.
    void assign(const ListRows& rows, std::span<const Sequence> sequences) {
        std::int64_t all = 0;
        for (const Sequence s : sequences) all += rows.extent(s.value).size();
        expect_indexable(all);
        reserve(all);
        std::int32_t end = 0;
        std::int32_t* next = indptr.data();
        *next++ = 0;
        for (const Sequence s : sequences) {
            const std::int32_t n = rows.extent(s.value).size();
            if (n != 0)
                std::memcpy(indices.data() + end, rows.data(0) + rows.start(s.value),
                            static_cast<std::size_t>(n) * sizeof(std::int32_t));
            *next++ = end += n;
        }
    }
};

/// For each sequence, the cells that a batch sees, in the order of positions: its sinks, then its window. A row is
/// brought up to date for the batches that need it. Tokens behind the last one are appended, and tokens that left the
/// window are dropped at the front. Other changes of the sequence rebuild the row from there on.
class CellRows {
public:
    /// `batch`: rows of one batch at most.
    CellRows(std::int32_t sequences, std::int32_t batch)
        : rows_{sequences, 2},
          state_(static_cast<std::size_t>(sequences)),
          columns_{2, batch},
          compressed_{ZeroedArray<std::int32_t>{std::int64_t{batch} + 1}, {}} {
        sequences_.reserve(static_cast<std::size_t>(batch));
    }

    const ListRows& rows() const { return rows_; }
    ListRows& rows() { return rows_; }
    std::span<const Sequence> sequences() const { return sequences_; }

    enum Column { starts, lengths };
    const ListColumns& columns() const { return columns_; }

    /// Room for rows of that many cells, which slide if `slides`. May throw; all rows stay right.
    void reserve(std::int64_t cells, bool slides) {
        rows_.reserve(slides ? 2 * cells : cells);
        compressed_.reserve(cells * columns_.rows());
    }

    /// Brings the rows of the book's open pass up to date. The book's table must track changes. May throw; then the
    /// next call goes on.
    template <class Book>
    void update(Book& book) {
        is_compressed_ = false;
        sequences_.clear();
        const auto& pass = book.pass();
        for (const Sequence s : pass.distinct_sequences) {
            State& row = state(s);
            row.seen_from = to_end;
            row.seen_to = {0};
        }
        for (std::size_t i = 0; i < pass.positions.size(); ++i) {
            State& row = state(pass.sequences[i]);
            row.seen_from = std::min(row.seen_from, book.visible_from(i));
            row.seen_to = std::max(row.seen_to, book.visible_to(i));
        }
        const Position sinks{book.window().sinks()};
        for (const Sequence s : pass.distinct_sequences) {
            update(s, book.runs(s), book.changes(s), sinks);
        }
        for (const Sequence s : pass.distinct_sequences) { // the array moves if a row outgrows it
            const std::size_t r = sequences_.size();
            columns_[starts][r] = rows_.start(s.value);
            columns_[lengths][r] = rows_.extent(s.value).size();
            sequences_.push_back(s);
        }
    }

    /// The rows of no sequence, for a pass without tokens of its own.
    void clear() {
        sequences_.clear();
        is_compressed_ = false;
    }

    /// May throw, with nothing changed.
    const CompressedRows& compressed() {
        if (!is_compressed_) compressed_.assign(rows_, sequences_);
        is_compressed_ = true;
        return compressed_;
    }

    /// The entries of s, and their positions.
    std::span<const std::int32_t> cells(Sequence s) const { return row(0, s); }
    std::span<const std::int32_t> positions(Sequence s) const { return row(1, s); }

    /// Entries of s at positions from here on changed since `forget_change`.
    Position changed(Sequence s) const { return state_[static_cast<std::size_t>(s.value)].changed; }
    void forget_change(Sequence s) { state(s).changed = to_end; }

private:
    struct State {
        Position seen_from; ///< by the batch
        Position seen_to;
        // The row has the sinks at positions below sinks_to, and all tokens at [from, to).
        Position sinks_to{0};
        Position from{0};
        Position to{0};
        std::int32_t sinks = 0; ///< how many entries are sinks
        Position changed{0};
    };

    State& state(Sequence s) { return state_[static_cast<std::size_t>(s.value)]; }

    std::span<const std::int32_t> row(int array, Sequence s) const {
        return {rows_.data(array) + rows_.start(s.value), static_cast<std::size_t>(rows_.extent(s.value).size())};
    }

    void update(Sequence s, const PositionRuns& runs, RunChanges& changes, Position all_sinks) {
        State& row = state(s);
        const Position sinks_to = std::min(all_sinks, row.seen_to);
        const Position from = std::max(row.seen_from, sinks_to);
        // A token that is appended later must not lie within the row.
        const Position end = runs.empty() ? Position{0} : runs.last() + 1;
        const Position to = std::max(from, std::min(row.seen_to, end));

        trim(s, sinks_to, from, to, changes);
        changes.clear();
        if (row.sinks_to != sinks_to) {
            append(s, runs, {0}, sinks_to);
            row.sinks = rows_.extent(s.value).size();
            row.sinks_to = sinks_to;
        }
        append(s, runs, row.to, to);
        row.to = to;
    }

    // Keeps what is right and still seen. Afterwards nothing depends on the changes.
    void trim(Sequence s, Position sinks_to, Position from, Position to, const RunChanges& changes) {
        State& row = state(s);
        Position right = std::min({row.to, to, changes.from});
        if (changes.erased_to > from) right = std::min(right, changes.erased_from);
        const bool loses_sinks = changes.from < sinks_to || changes.erased_from < sinks_to;
        if (loses_sinks || sinks_to != row.sinks_to || from < row.from || right <= from) return clear(s, from);
        const RowExtent& own = rows_.extent(s.value);
        const std::int32_t* const positions = rows_.row(1, s.value);
        const std::int32_t* const first = positions + own.begin + row.sinks;
        if (right < row.to) {
            const std::int32_t* const end = std::lower_bound(first, positions + own.end, right.value);
            rows_.cut(s.value, static_cast<std::int32_t>(end - positions));
            row.changed = std::min(row.changed, right);
            row.to = right;
        }
        if (from == row.from) return;
        const std::int32_t* kept = first;
        while (kept != positions + own.end && *kept < from.value) ++kept;
        rows_.drop(s.value, static_cast<std::int32_t>(kept - first), row.sinks); // the sinks follow the window
        row.from = from;
    }

    void clear(Sequence s, Position from) {
        rows_.clear(s.value);
        State& row = state(s);
        row.sinks_to = {0};
        row.sinks = 0;
        row.from = row.to = from;
        row.changed = {0};
    }

    void append(Sequence s, const PositionRuns& runs, Position from, Position to) {
        if (from >= to) return;
        const std::int32_t n = runs.count(from, to);
        rows_.make_room(s.value, n);
        const RowExtent& own = rows_.extent(s.value);
        std::int32_t* cells = rows_.row(0, s.value) + own.end;
        std::int32_t* positions = rows_.row(1, s.value) + own.end;
        runs.for_each(from, to, [&](Position position, Cell cell, std::int32_t count) {
            for (std::int32_t i = 0; i < count; ++i) {
                *cells++ = cell + i;
                *positions++ = position.value + i;
            }
        });
        rows_.append(s.value, static_cast<std::int32_t>(n));
    }

    ListRows rows_;
    TrivialList<State> state_;
    TrivialList<Sequence> sequences_; // of the rows
    ListColumns columns_;
    CompressedRows compressed_;
    bool is_compressed_ = false;
};

} // namespace cellar::detail
