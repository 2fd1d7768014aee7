// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/window/window.hpp>

#include <algorithm>

namespace cellar::detail {

/// True if a sequence has every position below p that a query at p would see: `covers(begin, end)` says whether it has
/// all of [begin, end).
template <WindowPolicy Window, class Covers>
bool resumes_if(const Window& window, Position p, Covers covers) {
    const Position sinks{window.sinks()};
    return covers(Position{0}, std::min(sinks, p)) && covers(std::max(sinks, window.oldest_visible(p)), p);
}

/// The same for `kept`, the kept positions of a sequence.
template <WindowPolicy Window, class Kept>
bool can_resume_with(const Window& window, const Kept& kept, Position p) {
    return resumes_if(window, p, [&](Position begin, Position end) { return kept.covers(begin, end); });
}

/// The largest q <= p where that is true, for windows that slide or that start anew in chunks. For a window that does
/// both it may be a smaller one. Looks up positions once for each gap that it steps back over.
template <WindowPolicy Window, class Kept>
Position resumable_prefix_with(const Window& window, const Kept& kept, Position p) {
    p = kept.covers(Position{0}, std::min(p, Position{window.sinks()})) ? p : kept.covered_to();
    while (!can_resume_with(window, kept, p)) {
        // What a query at p misses, every earlier query of the same covered stretch misses too. In a gap, only a query
        // that sees nothing before itself can resume: the first one of a chunk.
        const Position covered = kept.covered_from(p);
        const Position chunk = window.oldest_visible(p);
        const bool begins_chunk = window.oldest_visible(chunk) == chunk;
        p = covered < p ? covered - 1 : std::max(begins_chunk ? chunk : Position{0}, kept.end_before(p));
    }
    return p;
}

} // namespace cellar::detail
