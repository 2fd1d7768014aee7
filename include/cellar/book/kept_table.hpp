// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/cell_pool.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar::detail {

/// What snapshots own: cells of the pool in place, or, if they are offloaded, data of their own. Only operations that
/// begin with `prepare` allocate; they change nothing visible, and `finish` cannot fail if the pool has not changed in
/// between.
class KeptTable : public KeptLists<KeptTable, KeptCells> {
public:
    /// The pool is at a fixed address, and has `sequences` other owners.
    KeptTable(CellPool& pool, std::int32_t sequences) : pool_{pool}, sequences_{sequences} {}

    Cell cells() const { return pool_.cells(); }

    /// For what `runs` have at positions [from, to). O(runs).
    KeptCellsPointer prepare(const PositionRuns& runs, Position from, Position to, bool is_window) {
        KeptCellsPointer kept = make(runs, from, to, is_window);
        prepare_owner();
        return kept;
    }
    /// Shares these cells, except those at positions [gap_begin, gap_end).
    void finish(KeptCells& kept, const PositionRuns& runs, Position gap_begin, Position gap_end) noexcept {
        fill(kept, runs, kept);
        kept.runs.erase(gap_begin, gap_end);
        kept.runs.for_each(kept.from, kept.to, [&](Position, Cell cell, std::int32_t n) { pool_.share(cell, n); });
        add(kept);
    }
    void give(const KeptCells& kept) noexcept {
        if (kept.is_evictable) pool_.set_evictable(kept.runs, kept.from, kept.to, false);
        pool_.give(kept.runs, kept.from, kept.to);
    }

    /// Whether the snapshot can be evicted. O(words of 64 cells that it spans).
    void set_evictable(KeptCells& kept, bool evictable) noexcept {
        if (kept.is_evictable == evictable) return;
        kept.is_evictable = evictable;
        if (!kept.is_offloaded()) pool_.set_evictable(kept.runs, kept.from, kept.to, evictable);
    }

    /// True if some of the kept cells have no other owner. O(words of 64 cells that they span).
    bool frees_cells(const KeptCells& kept) const {
        return !kept.is_offloaded() && pool_.count_shared(kept.runs, kept.from, kept.to) < kept.runs.tokens();
    }

    /// True if some cells have no owners but those with which `for_each` calls its argument, and perhaps the owner of
    /// `runs`, if that is not null. O(words of 64 cells that they span).
    template <class ForEach>
    bool frees_together(ForEach for_each, const PositionRuns* runs) {
        const auto for_each_words = [&](auto visit) {
            for_each([&](const KeptCells& kept) {
                if (!kept.is_offloaded()) kept.runs.for_each_words(kept.from, kept.to, visit);
            });
        };
        const auto give_back = [&](const CellsOfWords& cells) { pool_.take_back(cells); };
        bool frees = false;
        if (runs != nullptr)
            runs->for_each_words(Position{0}, to_end, [&](const CellsOfWords& cells) { pool_.lend(cells); });
        for_each_words([&](const CellsOfWords& cells) { frees |= pool_.lend(cells); });
        for_each_words(give_back);
        if (runs != nullptr) runs->for_each_words(Position{0}, to_end, give_back);
        return frees;
    }

    /// How many kept tokens lie below `at`: the first row from there on. O(runs).
    static std::int32_t tokens_below(const KeptCells& kept, Position at) { return kept.runs.count(kept.from, at); }

    /// What will own positions from `at` on. O(runs).
    KeptCellsPointer prepare_split(KeptCells& kept, Position at) {
        KeptCellsPointer tail = make(kept.runs, at, kept.to, false);
        kept.runs.reserve(1);
        reserve_beside(kept);
        return tail;
    }
    /// `kept` gives them up to `tail`, which has its data by now. Rows of both are numbered from 0 on.
    void finish_split(KeptCells& kept, KeptCells& tail) noexcept {
        fill(tail, kept.runs, tail, kept.is_offloaded() ? -tokens_below(kept, tail.from) : 0);
        tail.is_evictable = kept.is_evictable;
        add(tail);
        kept.runs.erase(tail.from, to_end);
        kept.to = tail.from;
        if (kept.altered != to_end) tail.altered = std::max(kept.altered, tail.from);
        if (kept.altered >= kept.to) kept.altered = to_end;
    }

    /// Room for `runs` runs that begin where `kept` ends.
    void prepare_join(KeptCells& kept, std::int64_t runs) { kept.runs.reserve(runs + 2); }
    /// Adds what `tail` has, which then owns nothing. Both are in place or both are offloaded: then the rows of `tail`
    /// follow those of `kept`.
    void finish_join(KeptCells& kept, KeptCells& tail) noexcept {
        set_evictable(tail, kept.is_evictable);
        fill(kept, tail.runs, tail, kept.is_offloaded() ? kept.runs.tokens() : 0);
        kept.to = tail.to;
        kept.altered = std::min(kept.altered, tail.altered);
        remove(tail);
    }

    /// The cells of each row.
    using Places = TrivialList<Cell>;
    struct Rows {
        Places places;
        PositionRuns runs;
    };

    /// Kept cells, in order, and their runs with rows, numbered from 0 on, in place of cells. O(tokens).
    Rows prepare_offload(const KeptCells& kept) {
        Rows rows{{}, PositionRuns{kept.runs.runs() + 2}};
        rows.places.reserve(static_cast<std::size_t>(kept.rows()));
        kept.runs.for_each(kept.from, kept.to, [&](Position position, Cell cell, std::int32_t n) {
            rows.runs.insert(position, static_cast<Cell>(rows.places.size()), n);
            for (std::int32_t i = 0; i < n; ++i) rows.places.push_back(cell + i);
        });
        prepare_adopt();
        return rows;
    }
    /// Gives up the cells. `data` has the rows from now on.
    void finish_offload(KeptCells& kept, Rows& rows, UnownedData<OffloadedData> data) noexcept {
        release(kept);
        std::swap(kept.runs, rows.runs);
        finish_adopt(kept, std::move(data));
    }

    /// Room for the cells of all rows. Refuses with `full`.
    Result<Rows> prepare_reload(const KeptCells& kept) {
        const std::int32_t n = kept.rows();
        if (n > pool_.available()) return Refusal{.reason = Reason::full, .needed = n, .available = pool_.available()};
        Rows rows{{}, PositionRuns{pieces_of(kept, n)}};
        rows.places.reserve(static_cast<std::size_t>(n));
        prepare_owner();
        return rows;
    }
    /// Takes cells for all rows. Returns the data. What no table has yet has none, but its runs number rows.
    UnownedData<OffloadedData> finish_reload(KeptCells& kept, Rows& rows) noexcept {
        UnownedData<OffloadedData> data = remove_with_data(kept);
        pool_.take(kept.rows(), -1, rows.places);
        for_each_piece(kept, kept.to, rows.places,
                       [&](Position position, Cell cell, std::int32_t n) { rows.runs.insert(position, cell, n); });
        std::swap(kept.runs, rows.runs);
        if (kept.is_evictable) pool_.set_evictable(kept.runs, kept.from, kept.to, true);
        add(kept);
        return data;
    }

    /// At most that many runs of cells will hold the first n rows.
    std::int64_t pieces_of(const KeptCells& kept, std::int32_t n) const {
        return std::min(kept.runs.runs() + pool_.max_runs(n) - 1, std::int64_t{n}) + 2;
    }

    /// Calls `visit(position, cell, n)` for the runs of rows below `end`, where row i lies in cells[i].
    template <class Visit>
    static void for_each_piece(const KeptCells& kept, Position end, std::span<const Cell> cells, Visit visit) {
        kept.runs.for_each(kept.from, end, [&](Position position, Cell row, std::int32_t n) {
            const auto some = cells.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(n));
            for (std::size_t first = 0, i = 0; i < some.size(); first = i) {
                for (++i; i < some.size() && some[i] == some[i - 1] + 1;) ++i;
                visit(position + static_cast<std::int32_t>(first), some[first], static_cast<std::int32_t>(i - first));
            }
        });
    }

    /// Room for the runs that moved cells split into.
    void prepare_defragment(const Defragmentation& defragmentation) const {
        for (KeptCells* kept : in_place()) kept->runs.reserve(defragmentation.splits(kept->runs));
    }
    void finish_defragment(const Defragmentation& defragmentation) const noexcept {
        for (KeptCells* kept : in_place()) defragmentation.relocate(kept->runs);
    }

private:
    // Room for one more owner.
    void prepare_owner() {
        reserve_in_place();
        const std::int64_t snapshots = std::ssize(in_place()) + 1;
        pool_.reserve_owners(sequences_ + snapshots, snapshots);
    }

    // Owns nothing yet, with room for what `runs` have at positions [from, to).
    static KeptCellsPointer make(const PositionRuns& runs, Position from, Position to, bool is_window) {
        std::int64_t count = 0;
        runs.for_each(from, to, [&](Position, Cell, std::int32_t) { ++count; });
        return KeptCellsPointer{new KeptCells{from, to, is_window, count}};
    }

    // Adds what `runs` have at the positions of `range`, their cells or rows moved by `by`.
    static void fill(KeptCells& kept, const PositionRuns& runs, const KeptCells& range, Cell by = 0) {
        runs.for_each(range.from, range.to,
                      [&](Position position, Cell cell, std::int32_t n) { kept.runs.insert(position, cell + by, n); });
    }

    CellPool& pool_;
    std::int32_t sequences_;
};

} // namespace cellar::detail
