// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/book/defragmentation.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/owner_count.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/promises.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace cellar::detail {

/// How free cells are chosen.
enum class Choice {
    lowest, ///< the lowest run of neighbouring cells that is long enough, else the lowest cells
    blocks, ///< behind the sequence's last cell, else wholly free blocks of 64 cells
};

/// Which cells are free, and how many owners the others have: sequences and snapshots. It does not know who they are.
/// Some owners can be told to go: those are counted apart, too.
class CellPool {
public:
    CellPool(Cell cells, std::int32_t sequences, Choice choice)
        : cells_{cells},
          choice_{choice},
          free_{cells},
          owners_{cells, sequences},
          evictable_{cells, 0},
          promises_{sequences} {}
    static constexpr std::int64_t bytes_for(Cell cells, std::int32_t sequences) {
        return FreeCells::bytes_for(cells) + OwnerCount::bytes_for(cells, sequences) + OwnerCount::bytes_for(cells, 0);
    }

    Cell cells() const { return cells_; }
    const FreeCells& free() const { return free_; }
    const OwnerCount& owners() const { return owners_; }

    const Promises& promises() const { return promises_; }
    Promises& promises() { return promises_; }
    /// Free cells that are promised to no sequence. O(1).
    std::int32_t available() const { return free_.count() - promises_.cells(); }

    /// Afterwards a cell can have that many owners, of which `snapshots` can be evicted. May throw, with nothing
    /// visible changed.
    void reserve_owners(std::int64_t owners, std::int64_t snapshots) {
        owners_.reserve(cells_, owners);
        evictable_.reserve(cells_, snapshots);
    }

    /// How many cells would become free if all owners went that can be evicted. O(1).
    std::int32_t evictable() const { return evictable_cells_; }

    /// One owner of the cells at positions [from, to) can be evicted from now on, or no longer. O(words).
    void set_evictable(const PositionRuns& runs, Position from, Position to, bool evictable) {
        counts_evictable_ = true;
        runs.for_each_words(from, to, [&](const CellsOfWords& cells) {
            evictable_cells_ -= owners_.owned_by(evictable_, cells);
            if (evictable) {
                evictable_.add(cells);
            } else {
                for (std::int64_t at = cells.at; at < cells.at + cells.words; ++at)
                    evictable_.drop_word(at, cells.cells);
            }
            evictable_cells_ += owners_.owned_by(evictable_, cells);
        });
    }

    /// The first cell of the lowest run of n >= 1 free cells, or -1. O(log cells).
    Cell find_run(std::int32_t n) { return free_.find_run(n); }

    /// An upper bound (exclusive) on the cells that the next n tokens take, even if others are freed first. `behind`:
    /// -1, or the cell after which they go if they fit. Costs as much as a query of `FreeCells`.
    Cell end_of_next(std::int32_t n, Cell behind) {
        if (choice_ == Choice::blocks) {
            const CellRange blocks = free_.find_blocks(n);
            return blocks.count != 0 ? std::max(blocks.first, std::min(behind + 1, cells_ - n)) + n : cells_;
        }
        const Cell run = n == 1 ? free_.lowest() : free_.find_run(n);
        return run >= 0 ? run + n : cells_;
    }

    /// The most runs that `take` can return for n cells, even if other cells are freed first.
    std::int64_t max_runs(std::int32_t n) {
        if (choice_ == Choice::blocks)
            return free_.whole_blocks() > n / word_bits + 1 ? n / word_bits + 2 : std::int64_t{n};
        return n > 0 && free_.find_run(n) >= 0 ? 1 : std::int64_t{n};
    }

    /// Takes n free cells for one owner. `taken` is empty before, with room for n. `behind`: -1, or the cell of the
    /// owner's last token. O(n log cells) and a query of `FreeCells`; by `Choice::blocks`, O(log n) queries at worst.
    template <class Cells>
    void take(std::int32_t n, Cell behind, Cells& taken) {
        if (choice_ == Choice::lowest) return take_lowest(n, taken);
        taken.resize(static_cast<std::size_t>(n));
        take_by_blocks(n, behind, taken.data());
    }

    /// The same by `Choice::lowest`: in ascending order, the lowest run of n, else the n lowest.
    template <class Cells>
    void take_lowest(std::int32_t n, Cells& taken) {
        if (n == 0) return;
        const Cell run = n == 1 ? free_.lowest() : free_.find_run(n);
        if (run >= 0) {
            taken.resize(static_cast<std::size_t>(n));
            std::iota(taken.begin(), taken.end(), run);
            free_.take(run, n);
            owners_.add(run, n);
        } else {
            for (Cell cell = free_.next(0); n > 0; --n, cell = free_.next(cell + 1)) {
                free_.take(cell);
                owners_.add(cell, 1);
                taken.push_back(cell);
            }
        }
    }

    /// The same by `Choice::blocks`.
    void take_by_blocks(std::int32_t n, Cell behind, Cell* taken) {
        std::int32_t most = n; // neighbouring blocks have fewer cells once a piece has not found as many
        while (n > 0) {
            const CellRange place = place_in_blocks(n, behind, most);
            take(place);
            std::iota(taken, taken + place.count, place.first);
            taken += place.count;
            n -= place.count;
            behind = place.first + place.count - 1;
        }
    }
    /// The same for one cell. Usually O(1). Inlined in decode steps, also if it has other callers.
    [[gnu::always_inline]] Cell take_by_blocks(Cell behind) {
        Cell cell = behind + 1;
        if (bit_of(cell) == 0 || !free_.contains(cell)) cell = begin_block();
        free_.take(cell);
        owners_.add_word(word_of(cell), Word{1} << bit_of(cell));
        return cell;
    }

    /// Takes these free cells.
    void take(const CellRange& cells) {
        free_.take(cells.first, cells.count);
        owners_.add(cells.first, cells.count);
    }

    /// Cells that have owners get one more.
    void share(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { share(CellsOfWords{at, cells}); });
    }
    void share(const CellsOfWords& cells) {
        if (counts_evictable_) evictable_cells_ -= owners_.owned_by(evictable_, cells);
        owners_.add(cells);
    }

    /// Cells lose an owner, which cannot be evicted. Those that have none left become free.
    void give(const CellsOfWords& cells) {
        if (cells.words == 1) {
            free_.give_word(cells.at, owners_.drop_word(cells.at, cells.cells));
        } else {
            owners_.drop_words(cells, [&](const CellsOfWords& unowned) { free_.give(unowned); });
        }
        if (counts_evictable_) evictable_cells_ += owners_.owned_by(evictable_, cells);
    }
    void give(const PositionRuns& runs, Position from, Position to) {
        runs.for_each_words(from, to, [&](const CellsOfWords& cells) { give(cells); });
    }

    /// Cells lose an owner until `take_back`. Returns true if some have none left. They do not become free.
    bool lend(const CellsOfWords& cells) {
        if (cells.words == 1) return owners_.drop_word(cells.at, cells.cells) != 0;
        bool any = false;
        owners_.drop_words(cells, [&](const CellsOfWords&) { any = true; });
        return any;
    }
    /// Undoes `lend`.
    void take_back(const CellsOfWords& cells) { owners_.add(cells); }

    /// How many cells at positions [from, to) have several owners.
    std::int32_t count_shared(const PositionRuns& runs, Position from, Position to) const {
        std::int32_t count = 0;
        runs.for_each_words(from, to, [&](const CellsOfWords& cells) { count += owners_.shared(cells); });
        return count;
    }

    /// How many cells from `first` on, n at most, agree in being shared or not.
    std::int32_t uniform(Cell first, std::int32_t n) const { return owners_.uniform(first, n); }
    bool is_shared(Cell cell) const { return owners_.is_shared(cell); }

    /// One owner's share of up to n cells goes to neighbouring free cells, to which `plan` copies them. Returns how
    /// many found room. The plan has the owner's other copies.
    std::int32_t copy(Cell from, std::int32_t n, Plan& plan) {
        const CellRange to = place_of_copy(n, plan);
        take(to);
        visit_words(from, to.count, [&](std::int64_t at, Word cells) {
            owners_.drop_word(at, cells);
            if (counts_evictable_) evictable_cells_ += owners_.owned_by(evictable_, {at, cells});
        });
        plan.moves.push_back({from, to.first, to.count});
        return to.count;
    }

    /// Which moves bring the cells in use to [0, n).
    Defragmentation prepare_defragment() const { return Defragmentation{free_, cells_}; }
    void finish_defragment(const Defragmentation& defragmentation) noexcept {
        owners_.transfer(defragmentation.moves());
        if (counts_evictable_) evictable_.transfer(defragmentation.moves(), true);
        free_.pack(cells_ - free_.count());
    }

private:
    // The first of n cells, or as many as are neighbours: behind the owner's last one, else in wholly free blocks, of
    // which neighbours are preferred, else in the longest free run. There its first half stays free, if n is not too
    // large, for a sequence that goes on in front of it. `most`: see `FreeCells::find_blocks`.
    CellRange place_in_blocks(std::int32_t n, Cell behind, std::int32_t& most) {
        if (const std::int32_t room = behind < 0 ? 0 : room_behind(behind, n); room > 0) return {behind + 1, room};
        if (const CellRange blocks = free_.find_blocks(n, most); blocks.count != 0) return {blocks.first, n};
        if (const CellRange blocks = free_.find_blocks(1); blocks.count != 0) return blocks;
        const CellRange run = free_.find_longest_run();
        const std::int32_t skipped = std::min(run.count / 2, std::max(run.count - n, 0));
        return {run.first + skipped, std::min(n, run.count - skipped)};
    }

    CellRange place_in_blocks(std::int32_t n, Cell behind) {
        std::int32_t most = n;
        return place_in_blocks(n, behind, most);
    }

    // How many of n cells there are directly behind this one: the rest of its block and, for several, wholly free
    // blocks behind it.
    std::int32_t room_behind(Cell behind, std::int32_t n) const {
        const Cell next = behind + 1;
        std::int32_t room = bit_of(next) == 0 ? 0 : free_.free_in_block(next);
        if (n > 1 && room < n && bit_of(next + room) == 0) room += free_.free_in_blocks(word_of(next + room), n - room);
        return std::min(room, n);
    }

    // The cell of a token that cannot go on behind its sequence's last one.
    [[gnu::noinline]] Cell begin_block() {
        const Cell block = free_.lowest_block();
        return block >= 0 ? block : place_in_blocks(1, -1).first;
    }

    CellRange place_of_copy(std::int32_t n, const Plan& plan) {
        if (choice_ == Choice::blocks)
            return place_in_blocks(n, plan.moves.empty() ? -1 : plan.moves.back().to + plan.moves.back().count - 1);
        if (const Cell run = free_.find_run(n); run >= 0) return {run, n};
        const Cell first = free_.next(0);
        std::int32_t room = 1;
        while (first + room < cells_ && free_.contains(first + room)) ++room;
        return {first, room};
    }

    Cell cells_;
    Choice choice_;
    FreeCells free_;
    OwnerCount owners_;
    OwnerCount evictable_; // of these, those that can be evicted
    Promises promises_;
    std::int32_t evictable_cells_ = 0; // that have no other owners
    bool counts_evictable_ = false;    // there was one
};

} // namespace cellar::detail
