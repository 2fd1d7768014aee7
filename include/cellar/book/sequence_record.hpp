// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/visible_cells.hpp>

#include <cstdint>

namespace cellar::detail {

/// What the book holds of one sequence.
struct SequenceRecord {
    SequenceRecord(Cell cells, std::int64_t tokens, std::int32_t pinned) : runs{tokens}, visible{cells, pinned} {}

    PositionRuns runs;
    VisibleCells visible;
    // While it is in the open pass: positions [seen_from, seen_to) that its tokens see, pinned ones apart.
    bool in_pass = false;
    Position seen_from{};
    Position seen_to{};
};

} // namespace cellar::detail
