// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/book/cell_table.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

inline std::string text(std::integral auto number) {
    return std::to_string(number);
}
inline std::string text(Position p) {
    return std::to_string(p.value);
}

/// Adds an owner to each cell of `runs`. Returns the first contradiction, or an empty string.
inline std::string recount(const std::string& owner, const PositionRuns& runs, std::vector<std::int32_t>& owners) {
    const auto cells = static_cast<Cell>(owners.size());
    std::int32_t tokens = 0;
    Position last{-1};
    std::string fault;
    runs.for_each(Position{0}, to_end, [&](Position p, Cell cell, std::int32_t n) {
        if (p < last) fault = owner + ": position " + text(p) + " comes after " + text(last);
        if (cell < 0 || cell + n > cells) fault = owner + ": no such cell " + text(cell);
        last = p + (n - 1);
        tokens += n;
        for (Cell c = cell; fault.empty() && c < cell + n; ++c) ++owners[static_cast<std::size_t>(c)];
    });
    if (fault.empty() && tokens != runs.tokens())
        fault = owner + ": " + text(tokens) + " tokens, counted as " + text(runs.tokens());
    return fault;
}

/// The same for all sequences and snapshots of a table.
inline std::string recount_all(const CellTable& table, std::vector<std::int32_t>& owners) {
    for (std::int32_t s = 0; s < table.sequences(); ++s)
        if (std::string fault = recount("sequence " + text(s), table.record(Sequence{s}).runs, owners); !fault.empty())
            return fault;
    for (const KeptCells* kept : table.snapshots().in_place()) {
        const std::string owner = "snapshot " + text(kept->index);
        if (std::string fault = recount(owner, kept->runs, owners); !fault.empty()) return fault;
        if (kept->table != &table.snapshots() || table.snapshots().in_place()[kept->index] != kept)
            return owner + ": not listed where it says";
        if (!kept->runs.empty() && (kept->runs.first() < kept->from || kept->to <= kept->runs.last()))
            return owner + ": positions beyond [" + text(kept->from) + ", " + text(kept->to) + ")";
    }
    return {};
}

/// How many cells no owner has but snapshots that can be evicted. `owners` are recounted.
inline Cell recount_evictable(const CellTable& table, std::vector<std::int32_t> owners) {
    const auto used = [&] { return std::count_if(owners.begin(), owners.end(), [](auto n) { return n != 0; }); };
    const auto all = used();
    for (const KeptCells* kept : table.snapshots().in_place())
        if (kept->is_evictable)
            kept->runs.for_each(Position{0}, to_end, [&](Position, Cell cell, std::int32_t n) {
                for (Cell c = cell; c < cell + n; ++c) --owners[static_cast<std::size_t>(c)];
            });
    return static_cast<Cell>(all - used());
}

/// Recounts everything a table tracks from the runs of its sequences and snapshots. Returns the first contradiction, or
/// an empty string. O(cells + tokens of all sequences and snapshots).
inline std::string audit(const CellTable& table) {
    std::vector<std::int32_t> owners(static_cast<std::size_t>(table.cells()));
    if (std::string fault = recount_all(table, owners); !fault.empty()) return fault;
    std::int32_t free = 0;
    std::int32_t run = 0;
    std::int32_t longest = 0;
    for (Cell c = 0; c < table.cells(); ++c) {
        const std::int32_t expected = owners[static_cast<std::size_t>(c)];
        if (table.owners().count(c) != expected)
            return "cell " + text(c) + ": " + text(expected) + " owners, counted as " + text(table.owners().count(c));
        if (table.free().contains(c) != (expected == 0))
            return "cell " + text(c) + ": " + text(expected) + " owners, but marked as "
                   + (expected == 0 ? "used" : "free");
        run = expected == 0 ? run + 1 : 0;
        longest = std::max(longest, run);
        free += expected == 0 ? 1 : 0;
    }
    if (free != table.free().count()) return text(free) + " free cells, counted as " + text(table.free().count());
    if (longest != table.free().longest_run())
        return text(longest) + " free cells in a row, found " + text(table.free().longest_run());
    if (const Cell evictable = recount_evictable(table, std::move(owners)); evictable != table.evictable())
        return text(evictable) + " cells that eviction frees, counted as " + text(table.evictable());
    return {};
}

} // namespace cellar::detail
