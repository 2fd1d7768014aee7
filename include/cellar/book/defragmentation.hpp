// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/book/free_cells.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cellar {

/// How to bring n cells in use to [0, n). Only the cells at n and above move, each into a hole below n: no plan moves
/// fewer. Holes and cells are matched in ascending order, so that neighbours stay neighbours, and since every source
/// lies above every target no move can overwrite what another still has to read: no scratch memory is needed.
class Defragmentation {
public:
    Defragmentation(FreeCells& free, Cell cells) {
        const Cell used = cells - free.count();
        Cell from = free.next_used(used, cells);
        for (Cell to = free.next(0); from < cells; ++to, from = free.next_used(from + 1, cells)) {
            to = free.next(to);
            if (!moves_.empty() && follows(moves_.back(), from, to)) {
                ++moves_.back().count;
            } else {
                moves_.push_back({from, to, 1});
            }
        }
    }

    /// Neighbouring cells that move to neighbouring holes are one move; in ascending order.
    const std::vector<Move>& moves() const { return moves_; }

    /// Calls `visit(position, cell, count)` for the same tokens in the cells where they will lie, in order.
    template <class Visit>
    void for_each(const PositionRuns& runs, Visit visit) const {
        auto move = moves_.begin();
        runs.for_each({0}, end_of_time, [&](Position p, Cell cell, std::int32_t n) {
            move = first_ending_behind(cell, move);
            while (n > 0) {
                const bool inside = move != moves_.end() && move->from <= cell;
                const Cell end = move == moves_.end() ? cell + n : move->from + (inside ? move->count : 0);
                const std::int32_t count = std::min(n, end - cell);
                visit(p, inside ? move->to + (cell - move->from) : cell, count);
                if (inside) ++move;
                p = p + count;
                cell += count;
                n -= count;
            }
        });
    }

private:
    static bool follows(const Move& m, Cell from, Cell to) { return m.from + m.count == from && m.to + m.count == to; }

    // Where the last search ended is mostly where the next one does.
    std::vector<Move>::const_iterator first_ending_behind(Cell cell, std::vector<Move>::const_iterator near) const {
        const auto ends_before = [=](const Move& m) { return m.from + m.count <= cell; };
        if ((near == moves_.begin() || ends_before(near[-1])) && (near == moves_.end() || !ends_before(*near)))
            return near;
        return std::partition_point(moves_.begin(), moves_.end(), ends_before);
    }

    std::vector<Move> moves_;
};

} // namespace cellar
