// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/words.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>

namespace cellar::detail {

/// Which cells are free, and how many owners the others have: sequences and snapshots. It does not know who they are.
class CellPool {
public:
    CellPool(Cell cells, std::int32_t owners) : cells_{cells}, free_{cells}, owners_{cells, owners} {}

    Cell cells() const { return cells_; }
    const FreeCells& free() const { return free_; }
    const OwnerCount& owners() const { return owners_; }

    /// Afterwards a cell can have that many owners. May throw, with nothing visible changed.
    void reserve_owners(std::int64_t owners) { owners_.reserve(cells_, owners); }

    /// The first cell of the lowest run of n >= 1 free cells, or -1. O(log cells).
    Cell find_run(std::int32_t n) { return free_.find_run(n); }

    /// A cell behind all that will be taken for the next n tokens, in one piece or several, if others may be given up
    /// before. O(log cells).
    Cell end_of_next(std::int32_t n) {
        const Cell run = n == 1 ? free_.lowest() : free_.find_run(n);
        return run >= 0 ? run + n : cells_;
    }

    /// Takes n free cells for one owner, in ascending order: the lowest run of n, else the n lowest. `taken` is empty
    /// before, with room for n. O(n log cells).
    template <class Cells>
    void take(std::int32_t n, Cells& taken) {
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

    /// Cells that have owners get one more.
    void share(Cell first, std::int32_t n) { owners_.add(first, n); }
    void share_word(std::int64_t at, Word cells) { owners_.add_word(at, cells); }

    /// Cells lose an owner. Those that have none left become free.
    void give_word(std::int64_t at, Word cells) { free_.give_word(at, owners_.drop_word(at, cells)); }
    void give(const PositionRuns& runs, Position from, Position to) {
        runs.for_each_word(from, to, [&](std::int64_t at, Word cells) { give_word(at, cells); });
    }

    /// How many cells at positions [from, to) have several owners.
    std::int32_t count_shared(const PositionRuns& runs, Position from, Position to) const {
        std::int32_t count = 0;
        runs.for_each_word(from, to, [&](std::int64_t at, Word cells) { count += owners_.shared_word(at, cells); });
        return count;
    }

    /// How many cells from `first` on, n at most, agree in being shared or not.
    std::int32_t uniform(Cell first, std::int32_t n) const { return owners_.uniform(first, n); }
    bool is_shared(Cell cell) const { return owners_.is_shared(cell); }

    /// One owner's share of up to n cells goes to neighbouring free cells, to which `plan` copies them. Returns how
    /// many found room.
    std::int32_t copy(Cell from, std::int32_t n, Plan& plan) {
        Cell to = free_.find_run(n);
        if (to < 0) {
            to = free_.next(0);
            std::int32_t room = 1;
            while (to + room < cells_ && free_.contains(to + room)) ++room;
            n = room;
        }
        free_.take(to, n);
        owners_.add(to, n);
        visit_words(from, n, [&](std::int64_t at, Word cells) { owners_.drop_word(at, cells); });
        plan.moves.push_back({from, to, n});
        return n;
    }

    /// Which moves bring the cells in use to [0, n).
    Defragmentation prepare_defragment() const { return Defragmentation{free_, cells_}; }
    void finish_defragment(const Defragmentation& defragmentation) noexcept {
        owners_.transfer(defragmentation.moves());
        free_.pack(cells_ - free_.count(), cells_);
    }

private:
    Cell cells_;
    FreeCells free_;
    OwnerCount owners_;
};

} // namespace cellar::detail
