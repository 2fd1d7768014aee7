// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/schedules.hpp>
#include <cellar/book/cell_table.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/position_runs.hpp>

#include <cstdint>

namespace cellar::detail {

inline void add_runs(Digest& digest, const PositionRuns& runs) {
    digest.add(runs.tokens());
    runs.for_each(Position{0}, to_end,
                  [&](Position position, Cell cell, std::int32_t n) { digest.add(position).add(cell).add(n); });
}

/// A hash of what the sequences and the snapshots own, and of what is scheduled. O(runs). The same for snapshots in
/// another order.
inline std::uint64_t book_hash(const CellTable& table, const Schedules& schedules) {
    Digest digest;
    digest.add(table.cells()).add(table.free().count());
    for (std::int32_t s = 0; s < table.sequences(); ++s) {
        add_runs(digest, table.record(Sequence{s}).runs);
        digest.add(table.record(Sequence{s}).cut).add(table.altered_from(Sequence{s}));
        digest.add(table.promises().cells(Sequence{s}));
        for (const Position p : schedules.of(Sequence{s})) digest.add(p);
    }
    std::uint64_t kept_in_any_order = 0;
    for (const auto* list : {&table.snapshots().in_place(), &table.snapshots().offloaded()})
        for (const KeptCells* kept : *list) {
            Digest one;
            one.add(kept->from).add(kept->to).add(kept->altered).add(kept->is_offloaded() ? 1 : 0);
            add_runs(one, kept->runs);
            kept_in_any_order += one.value();
        }
    return digest.add(kept_in_any_order).value();
}

/// A hash of what decides how a book goes on: its size, and the window, as far as positions tell. O(1).
template <class Size, class Window>
std::uint64_t rules_hash(const Size& size, const Window& window) {
    Digest digest;
    digest.add(size.cells).add(size.sequences).add(size.batch).add(size.padding).add(size.start_padding);
    digest.add(static_cast<std::int32_t>(size.positions)).add(static_cast<std::int32_t>(size.choice));
    digest.add(window.sinks());
    for (const Position p : {Position{1 << 20}, Position{INT32_MAX - 1}})
        digest.add(window.oldest_visible(p)).add(window.oldest_kept(p));
    return digest.value();
}

} // namespace cellar::detail
