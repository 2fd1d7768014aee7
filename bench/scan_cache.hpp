// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cellar.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar::bench {

/// Where the search for free cells begins.
enum class Search {
    from_first, ///< at cell 0
    from_head,  ///< after the cells taken last
};

/// The bookkeeping of caches that keep one record {position, owners} per cell and test cell by cell. cellar is compared
/// with it, so it is written to be fast: 16 bytes per cell, owners as one word (at most 64 sequences), no branch per
/// cell where the result is written in any case, and a range of cells per sequence that limits the scans for masks and
/// windows.
template <WindowPolicy Window>
class ScanCache {
public:
    /// Starts with the tokens and cells of `table`.
    ScanCache(const detail::CellTable& table, const Window& window)
        : window_{window}, cells_(static_cast<std::size_t>(table.cells())), ranges_(64), newest_(64) {
        for (std::int32_t s = 0; s < table.sequences(); ++s)
            table.record(Sequence{s}).runs.for_each(Position{0}, to_end, [&](Position p, Cell cell, std::int32_t n) {
                for (std::int32_t i = 0; i < n; ++i) enter(Sequence{s}, p + i, cell + i);
            });
    }

    /// Takes a cell for each token: the first run of free cells that is long enough, else the first free cells. False
    /// if too few are free. Before that, forgets the tokens that fell out of the windows of the batch's sequences.
    bool begin(const Batch& batch, Search search) {
        history_ = {};
        find_history(batch);
        find_free(batch.tokens(), search == Search::from_head ? head_ : 0);
        if (taken_.size() < batch.positions.size()) return false;
        for (std::size_t i = 0; i < taken_.size(); ++i) {
            enter(batch.sequences[i], batch.positions[i], taken_[i]);
            history_.include(taken_[i]);
        }
        if (!taken_.empty()) head_ = taken_.back() + 1;
        return true;
    }

    std::span<const Cell> taken() const { return taken_; }
    CellRange history() const { return {history_.first, history_.last - history_.first + 1}; }

    /// Frees these cells and moves the head back to the first of them. Never measured.
    void take_back(std::span<const Cell> cells) {
        for (const Cell cell : cells) at(cell).owners = 0;
        head_ = cells.empty() ? head_ : cells.front();
    }

    /// Writes [tokens, history], last index fastest.
    template <class T>
    void write_mask(const Batch& batch, T* out) const {
        const ScanCell* const first = cells_.data() + history_.first;
        const std::int32_t n = history().count;
        for (std::size_t i = 0; i < batch.positions.size(); ++i, out += n) {
            const Position to = batch.positions[i];
            const Position from = window_.oldest_visible(to);
            const int s = batch.sequences[i].value;
            for (std::int32_t c = 0; c < n; ++c) {
                const bool visible = static_cast<bool>(
                    (first[c].owners >> s & 1) & unsigned{first[c].position >= from && first[c].position <= to});
                out[c] = visible ? detail::MaskValues<T>::visible : detail::MaskValues<T>::hidden;
            }
        }
    }

    void copy_prefix(Sequence from, Sequence to, Position end) {
        const std::uint64_t source = bit(from);
        const std::uint64_t target = bit(to);
        Range range;
        for (Cell c = 0; c < size(); ++c) {
            ScanCell& cell = at(c);
            cell.owners &= ~target;
            if ((cell.owners & source) == 0 || cell.position >= end) continue;
            cell.owners |= target;
            range.include(c);
        }
        ranges_[index(to)] = range;
    }

    /// Removes positions [begin, end) of s and closes the gap. The cells of s must not be shared.
    void remove(Sequence s, Position begin, Position end) {
        const std::uint64_t owner = bit(s);
        Range range;
        for (Cell c = 0; c < size(); ++c) {
            ScanCell& cell = at(c);
            if ((cell.owners & owner) == 0) continue;
            if (cell.position >= begin && cell.position < end) {
                cell.owners &= ~owner;
                continue;
            }
            if (cell.position >= end) cell.position = cell.position - (end - begin);
            range.include(c);
        }
        ranges_[index(s)] = range;
    }

    bool can_resume(Sequence s, Position p) const {
        const Position from = window_.oldest_visible(p);
        std::int32_t found = 0;
        for (Cell c = ranges_[index(s)].first; c <= ranges_[index(s)].last; ++c)
            found += (at(c).owners & bit(s)) != 0 && at(c).position >= from && at(c).position < p ? 1 : 0;
        return found == p - from;
    }

    /// Moves the cells in use to [0, n).
    std::vector<Move> defragment() {
        std::vector<Move> moves;
        const auto used = static_cast<Cell>(std::count_if(cells_.begin(), cells_.end(), is_used));
        Cell to = 0;
        for (Cell from = used; from < size(); ++from) {
            if (at(from).owners == 0) continue;
            while (at(to).owners != 0) ++to;
            at(to) = at(from);
            at(from).owners = 0;
            if (!moves.empty() && moves.back().from + moves.back().count == from
                && moves.back().to + moves.back().count == to) {
                ++moves.back().count;
            } else {
                moves.push_back({from, to, 1});
            }
        }
        ranges_.assign(ranges_.size(), {});
        for (Cell c = 0; c < used; ++c)
            for (std::uint64_t rest = at(c).owners; rest != 0; rest &= rest - 1)
                ranges_[static_cast<std::size_t>(std::countr_zero(rest))].include(c);
        return moves;
    }

    Cell size() const { return static_cast<Cell>(cells_.size()); }
    bool owns(Sequence s, Cell cell, Position p) const {
        return (at(cell).owners & bit(s)) != 0 && at(cell).position == p;
    }
    std::int64_t owners() const {
        std::int64_t sum = 0;
        for (const ScanCell& cell : cells_) sum += std::popcount(cell.owners);
        return sum;
    }

private:
    struct ScanCell {
        Position position;
        std::uint64_t owners = 0;
    };

    struct Range {
        Cell first = INT32_MAX;
        Cell last = -1;

        void include(Cell cell) {
            first = std::min(first, cell);
            last = std::max(last, cell);
        }
    };

    static std::size_t index(Sequence s) { return static_cast<std::size_t>(s.value); }
    static std::uint64_t bit(Sequence s) { return std::uint64_t{1} << s.value; }
    static bool is_used(const ScanCell& cell) { return cell.owners != 0; }

    ScanCell& at(Cell cell) { return cells_[static_cast<std::size_t>(cell)]; }
    const ScanCell& at(Cell cell) const { return cells_[static_cast<std::size_t>(cell)]; }

    void enter(Sequence s, Position p, Cell cell) {
        at(cell).position = p;
        at(cell).owners |= bit(s);
        ranges_[index(s)].include(cell);
        newest_[index(s)] = std::max(newest_[index(s)], p);
    }

    // Without a window, a sequence sees all its cells. With one, a scan finds the visible ones.
    void find_history(const Batch& batch) {
        std::uint64_t in_batch = 0;
        Range all;
        for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
            const Sequence s = batch.sequences[i];
            visible_from_[index(s)] =
                (in_batch & bit(s)) == 0 ? batch.positions[i] : std::min(visible_from_[index(s)], batch.positions[i]);
            in_batch |= bit(s);
            all.include(ranges_[index(s)].first);
            all.include(ranges_[index(s)].last);
        }
        if (window_.oldest_kept(to_end) == Position{0}) {
            history_ = all;
            return;
        }
        for (std::uint64_t rest = in_batch; rest != 0; rest &= rest - 1) {
            const auto s = static_cast<std::size_t>(std::countr_zero(rest));
            visible_from_[s] = window_.oldest_visible(visible_from_[s]);
            kept_from_[s] = window_.oldest_kept(newest_[s]);
            ranges_[s] = {};
        }
        for (Cell c = all.first; c <= all.last; ++c) update(c, in_batch);
    }

    void update(Cell c, std::uint64_t in_batch) {
        ScanCell& cell = at(c);
        for (std::uint64_t rest = cell.owners & in_batch; rest != 0; rest &= rest - 1) {
            const auto s = static_cast<std::size_t>(std::countr_zero(rest));
            if (cell.position < kept_from_[s]) {
                cell.owners &= ~(std::uint64_t{1} << s);
                continue;
            }
            ranges_[s].include(c);
            if (cell.position >= visible_from_[s]) history_.include(c);
        }
    }

    void find_free(std::int32_t n, Cell start) {
        taken_.clear();
        std::int32_t run = 0;
        for (Cell k = 0, c = start; k < size(); ++k, ++c) {
            if (c >= size()) {
                c = 0;
                run = 0;
            }
            if (at(c).owners != 0) {
                run = 0;
                continue;
            }
            if (static_cast<std::int32_t>(taken_.size()) < n) taken_.push_back(c);
            if (++run < n) continue;
            for (std::int32_t i = 0; i < n; ++i) taken_[static_cast<std::size_t>(i)] = c - n + 1 + i;
            return;
        }
    }

    Window window_;
    std::vector<ScanCell> cells_;
    std::vector<Range> ranges_;
    std::vector<Position> newest_;
    std::vector<Cell> taken_;
    Position visible_from_[64] = {};
    Position kept_from_[64] = {};
    Range history_;
    Cell head_ = 0;
};

} // namespace cellar::bench
