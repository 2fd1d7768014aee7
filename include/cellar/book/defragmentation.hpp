// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace cellar::detail {

/// How to bring the n cells in use to [0, n). Only cells at n and above move, each into a hole below n, so no plan
/// moves fewer. Cells and holes are matched in ascending order, which keeps neighbours together. Every source lies
/// above every target, so no move overwrites what another one reads, and no scratch memory is needed.
class Defragmentation {
public:
    Defragmentation(const FreeCells& free, Cell cells) : used_{cells - free.count()} {
        BitRuns holes = free.free_runs(0, used_);
        BitRuns moved = free.used_runs(used_, cells);
        // The holes have as many cells as there are to move.
        CellRange to;
        for (CellRange from = moved.next(); from.count != 0;) {
            if (to.count == 0) to = holes.next();
            const std::int32_t n = std::min(from.count, to.count);
            plan_.moves.push_back({from.first, to.first, n});
            from = n == from.count ? moved.next() : CellRange{from.first + n, from.count - n};
            to = {to.first + n, to.count - n};
        }
    }

    /// In ascending order. Neighbouring cells that move to neighbouring holes are one move.
    const TrivialList<Move>& moves() const { return plan_.moves; }

    /// How many cells move.
    std::int64_t cells() const {
        return std::accumulate(moves().begin(), moves().end(), std::int64_t{0},
                               [](std::int64_t sum, const Move& move) { return sum + move.count; });
    }

    /// The moves as a plan.
    const Plan& plan() const { return plan_; }
    Plan& plan() { return plan_; }

    /// How many runs the moves can add to a sequence: a run is divided where a move begins behind its first cell.
    /// O(runs + log moves for each one that moves).
    std::int64_t splits(const PositionRuns& runs) const {
        std::int64_t count = 0;
        runs.for_each(Position{0}, to_end, [&](Position, Cell cell, std::int32_t n) {
            if (n > 1 && cell + n > used_) count += moves_up_to(cell + n - 1) - moves_up_to(cell);
        });
        return count;
    }

    /// Updates the runs of a sequence to the cells after the moves. Needs room for `splits` more.
    void relocate(PositionRuns& runs) const {
        const Move* move = moves().begin();
        runs.relocate(Position{0}, splits(runs), [&](Cell cell, std::int32_t n) -> CellRange {
            if (cell < used_) return {cell, std::min(n, used_ - cell)};
            move = move_of(cell, move);
            const Move& inside = *move;
            const Cell end = inside.from + inside.count;
            if (cell + n >= end) ++move; // where the next run usually goes on
            return {inside.to + (cell - inside.from), std::min(n, end - cell)};
        });
    }

private:
    // How many moves begin at this cell or below.
    std::int64_t moves_up_to(Cell cell) const {
        return std::partition_point(moves().begin(), moves().end(), [=](const Move& m) { return m.from <= cell; })
               - moves().begin();
    }

    // The move of a cell in use, which usually is `near`.
    const Move* move_of(Cell cell, const Move* near) const {
        const auto ends_before = [=](const Move& m) { return m.from + m.count <= cell; };
        if (near != moves().end() && near->from <= cell && !ends_before(*near)) return near;
        return std::partition_point(moves().begin(), moves().end(), ends_before);
    }

    Cell used_;
    Plan plan_;
};

} // namespace cellar::detail
