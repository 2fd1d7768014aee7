// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/book/removal.hpp>
#include <cellar/window/window.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// What a sequence forgets: what neither the sinks, nor its window, nor its schedules keep.
template <WindowPolicy Window>
class Forgetting {
public:
    Forgetting(const Window& window, std::span<const Position> scheduled) : window_{window}, scheduled_{scheduled} {}

    /// Calls `visit(from, to)` for what the schedules up to `last` do not keep either, below `kept`.
    template <class Visit>
    void for_each_below(Position kept, Position last, Visit visit) const {
        Position from{window_.sinks()};
        for (const Position p : scheduled_) {
            const Position begin = window_.oldest_kept(p - 1);
            if (p > last || begin >= kept) break; // neither this nor a later one keeps what lies below
            if (from < begin) visit(from, begin);
            from = std::max(from, p);
        }
        if (from < kept) visit(from, kept);
    }

    /// Calls `visit(span)` for what goes if a gap is closed at positions [begin, end): schedules end behind `begin`,
    /// and what only they have kept is forgotten, relative to where the last token is then.
    template <class Visit>
    void for_each_with_gap(const PositionRuns& runs, Position begin, Position end, Visit visit) const {
        const bool any_ends = !scheduled_.empty() && scheduled_.back() > begin;
        if (!any_ends || end <= begin || runs.empty() || runs.last() < end) return;
        const std::int32_t gap = end - begin;
        for_each_below(window_.oldest_kept(runs.last() - gap), begin, [&](Position from, Position to) {
            if (from < begin) visit(PositionSpan{from, std::min(to, begin)});
            if (to > begin) visit(PositionSpan{std::max(from, begin) + gap, to + gap});
        });
    }

private:
    const Window& window_;
    std::span<const Position> scheduled_;
};

} // namespace cellar::detail
