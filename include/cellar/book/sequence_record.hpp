// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/visible_cells.hpp>

#include <cstdint>

namespace cellar::detail {

/// What the book holds of one sequence. Two lines of memory, because a pass reads a record for every token.
struct alignas(64) SequenceRecord {
    /// `share`: the runs that it is planned to have.
    SequenceRecord(Cell cells, std::int64_t share, std::int32_t pinned) : runs{share}, visible{cells, pinned} {}

    PositionRuns runs;
    VisibleCells visible;
    bool in_pass = false; ///< it has tokens in the open pass
};

} // namespace cellar::detail
