// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
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

    /// How many runs the moves can add to a sequence at most: a run is divided only where a move begins.
    std::int64_t max_splits(const PositionRuns& runs) const {
        return std::min<std::int64_t>(runs.tokens() - runs.runs(), std::ssize(moves()));
    }

    /// Updates the runs of a sequence to the cells after the moves. Needs room for `max_splits` more.
    void relocate(PositionRuns& runs) const {
        const Move* move = moves().begin();
        runs.relocate(max_splits(runs), [&](Cell cell, std::int32_t n) -> CellRange {
            if (cell < used_) return {cell, std::min(n, used_ - cell)};
            move = move_of(cell, move);
            const Move& inside = *move;
            const Cell end = inside.from + inside.count;
            if (cell + n >= end) ++move; // where the next run usually goes on
            return {inside.to + (cell - inside.from), std::min(n, end - cell)};
        });
    }

private:
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
