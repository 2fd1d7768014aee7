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
#include <memory>
#include <span>
#include <utility>

namespace cellar::detail {

/// What snapshots own: cells of the pool in place, or, if they are paged out, data of their own. Only operations that
/// begin with `prepare` allocate; they change nothing visible, and `finish` cannot fail if the pool has not changed in
/// between.
class KeptTable {
public:
    /// The pool is at a fixed address, and has `sequences` other owners.
    KeptTable(CellPool& pool, std::int32_t sequences) : pool_{pool}, sequences_{sequences} {}

    Cell cells() const { return pool_.cells(); }

    /// The snapshots that own cells in place.
    const TrivialList<KeptCells*>& in_place() const { return in_place_.all(); }
    const TrivialList<KeptCells*>& paged_out() const { return paged_out_.all(); }

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
        in_place_.add(kept, *this);
    }

    /// The opposite: gives up the cells, or the data.
    void release(KeptCells& kept) noexcept {
        if (kept.is_paged_out()) {
            kept.data->finish_work();
            paged_out_.remove(kept);
        } else {
            pool_.give(kept.runs, kept.from, kept.to);
            in_place_.remove(kept);
        }
    }

    /// True if some of the kept cells have no other owner. O(words of 64 cells that they span).
    bool frees_cells(const KeptCells& kept) const {
        return !kept.is_paged_out() && pool_.count_shared(kept.runs, kept.from, kept.to) < kept.runs.tokens();
    }

    /// How many kept tokens lie below `at`: the first row from there on. O(runs).
    static std::int32_t tokens_below(const KeptCells& kept, Position at) { return kept.runs.count(kept.from, at); }

    /// What will own positions from `at` on. O(runs).
    KeptCellsPointer prepare_split(KeptCells& kept, Position at) {
        KeptCellsPointer tail = make(kept.runs, at, kept.to, false);
        kept.runs.reserve(1);
        list_of(kept).reserve_one();
        return tail;
    }
    /// `kept` gives them up to `tail`. If it is paged out, the rows of both are numbered from 0 on.
    void finish_split(KeptCells& kept, KeptCells& tail) noexcept {
        fill(tail, kept.runs, tail, kept.is_paged_out() ? -tokens_below(kept, tail.from) : 0);
        list_of(kept).add(tail, *this);
        kept.runs.erase(tail.from, to_end);
        kept.to = tail.from;
    }

    /// Room for `runs` runs that begin where `kept` ends.
    void prepare_join(KeptCells& kept, std::int64_t runs) { kept.runs.reserve(runs + 2); }
    /// Adds what `tail` has, which then owns nothing. Both are in place or both are paged out: then the rows of `tail`
    /// follow those of `kept`.
    void finish_join(KeptCells& kept, KeptCells& tail) noexcept {
        fill(kept, tail.runs, tail, kept.is_paged_out() ? kept.runs.tokens() : 0);
        kept.to = tail.to;
        list_of(tail).remove(tail);
    }

    /// The runs of kept cells, with rows, numbered from 0 on, in place of cells. O(runs).
    PositionRuns prepare_page_out(const KeptCells& kept) {
        PositionRuns rows{kept.runs.runs() + 2};
        Cell row = 0;
        kept.runs.for_each(kept.from, kept.to, [&](Position position, Cell, std::int32_t n) {
            rows.insert(position, row, n);
            row += n;
        });
        paged_out_.reserve_one();
        return rows;
    }
    /// Gives up the cells. `data` has the rows from now on.
    void finish_page_out(KeptCells& kept, PositionRuns rows, std::unique_ptr<PagedData> data) noexcept {
        pool_.give(kept.runs, kept.from, kept.to);
        in_place_.remove(kept);
        paged_out_.add(kept, *this);
        std::swap(kept.runs, rows);
        kept.data = std::move(data);
    }

    /// Takes over what no table has yet, with its data.
    void prepare_adopt() { paged_out_.reserve_one(); }
    void finish_adopt(KeptCells& kept, std::unique_ptr<PagedData> data) noexcept {
        paged_out_.add(kept, *this);
        kept.data = std::move(data);
    }

    /// Cells for rows.
    struct Intake {
        TrivialList<Cell> cells; ///< of each row; empty, with room, until they are taken
        PositionRuns runs;
    };

    /// Refuses with `full`.
    Result<Intake> prepare_page_in(const KeptCells& kept) {
        const std::int32_t n = kept.runs.tokens();
        if (n > pool_.free().count()) return Reason::full;
        Intake intake{{}, PositionRuns{pieces_of(kept, n)}};
        intake.cells.reserve(static_cast<std::size_t>(n));
        prepare_owner();
        return intake;
    }
    /// Takes cells for all rows. Afterwards, the snapshot does not need its data any more.
    void finish_page_in(KeptCells& kept, Intake& intake) noexcept {
        paged_out_.remove(kept);
        finish_intake(kept, intake);
    }
    /// The same for what no table has yet. It has neither rows nor data, but its runs number rows.
    void finish_intake(KeptCells& kept, Intake& intake) noexcept {
        pool_.take(kept.runs.tokens(), -1, intake.cells);
        for_each_piece(kept, kept.to, intake.cells,
                       [&](Position position, Cell cell, std::int32_t n) { intake.runs.insert(position, cell, n); });
        in_place_.add(kept, *this);
        std::swap(kept.runs, intake.runs);
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
        in_place_.reserve_one();
        pool_.reserve_owners(std::int64_t{sequences_} + std::ssize(in_place()) + 1);
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

    KeptList<KeptCells>& list_of(const KeptCells& kept) { return kept.is_paged_out() ? paged_out_ : in_place_; }

    CellPool& pool_;
    std::int32_t sequences_;
    KeptList<KeptCells> in_place_;
    KeptList<KeptCells> paged_out_;
};

} // namespace cellar::detail
