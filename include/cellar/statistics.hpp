// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/book/ledger.hpp>

#include <cstdint>

namespace cellar {

/// Positions [first, last], both kept; some in between may be missing.
struct PositionRange {
    Position first;
    Position last;

    constexpr bool operator==(const PositionRange&) const = default;
};

/// How a cache is filled.
struct Statistics {
    Cell cells = 0;             ///< all
    Cell free = 0;              ///< owned by nobody
    Cell shared = 0;            ///< owned by more than one sequence
    Cell longest_free_run = 0;  ///< the longest batch that still goes into one run
    std::int32_t sequences = 0; ///< that have tokens
    std::int64_t tokens = 0;    ///< of all sequences, shared cells counted for each
    std::int64_t bytes = 0;     ///< of keys and values in all layers

    /// 0: the free cells lie together; towards 1: they are scattered.
    double fragmentation() const {
        return free == 0 ? 0.0 : 1.0 - static_cast<double>(longest_free_run) / static_cast<double>(free);
    }

    bool operator==(const Statistics&) const = default;
};

inline Statistics statistics(const Ledger& ledger, std::int64_t bytes) {
    Statistics found{.cells = ledger.cells(),
                     .free = ledger.free().count(),
                     .shared = ledger.owners().shared(0, ledger.cells()),
                     .longest_free_run = ledger.free().longest_run(),
                     .bytes = bytes};
    for (std::int32_t s = 0; s < ledger.sequences(); ++s) {
        const std::int32_t tokens = ledger.record({s}).runs.tokens();
        found.sequences += tokens != 0 ? 1 : 0;
        found.tokens += tokens;
    }
    return found;
}

} // namespace cellar
