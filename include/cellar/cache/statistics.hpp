// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/cell_table.hpp>

#include <cstdint>

namespace cellar {

/// Positions [first, last]. Both are kept; some in between may be missing.
struct PositionRange {
    Position first;
    Position last;

    constexpr bool operator==(const PositionRange&) const = default;
};

/// How full a cache is.
struct CacheStatistics {
    Cell cells = 0;                   ///< all cells, free or not
    Cell allocated = 0;               ///< cells that have memory: all, but for `CacheLimits::initial_cells`
    Cell free = 0;                    ///< cells that no sequence and no snapshot owns
    Cell shared = 0;                  ///< cells that several sequences or snapshots own
    Cell longest_free_run = 0;        ///< the longest batch that still fits into one run of cells
    std::int32_t sequences = 0;       ///< sequences that have tokens
    std::int64_t tokens = 0;          ///< of all sequences; a shared cell counts once for each of them
    std::int32_t snapshots = 0;       ///< snapshots that own cells in place
    std::int64_t snapshot_tokens = 0; ///< tokens of snapshots in place; a shared cell counts once for each
    std::int32_t offloaded = 0;       ///< snapshots that are offloaded
    std::int64_t offloaded_bytes = 0; ///< of these, outside the cells
    std::int64_t bytes = 0;           ///< of keys and values in all layers

    /// 0: all free cells are neighbours. Close to 1: they are scattered.
    double fragmentation() const {
        return free == 0 ? 0.0 : 1.0 - static_cast<double>(longest_free_run) / static_cast<double>(free);
    }

    bool operator==(const CacheStatistics&) const = default;
};

namespace detail {

inline CacheStatistics statistics_of(const CellTable& table, Cell allocated, std::int64_t bytes) {
    CacheStatistics found{.cells = table.cells(),
                          .allocated = allocated,
                          .free = table.free().count(),
                          .shared = table.owners().shared(0, table.cells()),
                          .longest_free_run = table.free().longest_run(),
                          .bytes = bytes};
    for (std::int32_t s = 0; s < table.sequences(); ++s) {
        const std::int32_t tokens = table.record(Sequence{s}).runs.tokens();
        found.sequences += tokens != 0 ? 1 : 0;
        found.tokens += tokens;
    }
    for (const KeptCells* kept : table.snapshots().in_place()) {
        ++found.snapshots;
        found.snapshot_tokens += kept->runs.tokens();
    }
    for (const KeptCells* kept : table.snapshots().offloaded()) {
        ++found.offloaded;
        found.offloaded_bytes += kept->data->bytes();
    }
    return found;
}

} // namespace detail

} // namespace cellar
