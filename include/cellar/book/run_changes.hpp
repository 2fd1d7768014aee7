// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/position_runs.hpp>

#include <algorithm>

namespace cellar::detail {

/// A conservative record of changes to a sequence's runs. Tokens that are appended are not recorded.
struct RunChanges {
    Position from{0};              ///< tokens at positions from here on were added, removed or moved
    Position erased_from = to_end; ///< tokens at [erased_from, erased_to) were removed
    Position erased_to{0};

    void clear() { *this = {.from = to_end}; }

    void add(Position position) { from = std::min(from, position); }

    /// `runs` are about to get tokens at `position` and behind.
    void add_inserted(const PositionRuns& runs, Position position) {
        if (!runs.empty() && position <= runs.last()) add(position);
    }

    /// `runs` lost tokens at [begin, end).
    void add_erased(const PositionRuns& runs, Position begin, Position end) {
        const Position next = runs.empty() ? Position{0} : runs.last() + 1; // later tokens may be appended here
        add(next);
        if (next <= begin) return;
        erased_from = std::min(erased_from, begin);
        erased_to = std::max(erased_to, end);
    }
};

} // namespace cellar::detail
