// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/book/position_runs.hpp>

#include <cstdint>

namespace cellar::detail {

class KeptTable;

/// The cells that a snapshot owns, as a sequence owns its own: defragmentation moves them, and nothing else changes
/// them. Or, if it is offloaded, the rows of its data. `KeptTable` fills them in.
struct KeptCells : Kept<KeptTable> {
    /// Of positions [the_from, the_to); with room for `count` runs.
    KeptCells(Position the_from, Position the_to, bool window, std::int64_t count)
        : runs{count + 2}, from{the_from}, to{the_to}, is_window{window} {}

    /// True if every position in [begin, end) has a token here.
    bool covers(Position begin, Position end) const { return runs.covers(begin, end); }

    std::int32_t rows() const { return runs.tokens(); }

    PositionRuns runs; ///< of cells, or of rows
    Position from;
    Position to;
    Position altered = to_end; ///< see `CellTable::altered_from`; from `from` on
    bool is_window;            ///< tokens below `to` were forgotten before: what is here is a window, and the sinks
    bool is_evictable = false; ///< a prefix tree gives it up when it is asked to
};

using KeptCellsPointer = KeptPointer<KeptCells>;

} // namespace cellar::detail
