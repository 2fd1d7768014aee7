// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>

namespace cellar {

/// The room in a cache: what is free, what batches need, what is promised to sequences. `Cache` derives from it.
template <class TheCache>
class CellRoom {
public:
    /// Cells that no sequence and no snapshot owns, and that are promised to no sequence. O(1).
    Cell free_cells(Where where = Where::current()) const { return own().table(where).available(); }
    /// How many of these `begin` needs for this batch: if it refuses for no other reason, it refuses with `full` if and
    /// only if there are fewer. A token for which its sequence has a promise needs none. O(1), or O(tokens) if there
    /// are promises, or if the batch is stored in part.
    std::int32_t cells_needed(const Batch& batch, Where where = Where::current()) {
        const detail::Caller caller{where};
        return own().state(where).book.cells_needed(batch);
    }
    /// By how much `free_cells` grows when s loses all its tokens: cells that nothing else owns, and its promise. O(1 +
    /// 64-cell words that its cells span), and O(1) while no cell was ever shared.
    std::int32_t cells_freed_by(Sequence s, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return own().table(where).unshared(s) + own().table().promises().cells(s);
    }

    /// Cells that no sequence owns, but snapshots of prefix trees, which give them up when they are asked to: see
    /// `PrefixTree::evictable`, which leaves out what is pinned. O(1).
    Cell evictable_cells(Where where = Where::current()) const { return own().table(where).evictable(); }

    /// Calls f(position, cell, count) for the runs of each snapshot that is in place, as `Cache::visit_cells` does for
    /// a sequence. Sequences may own its cells, too. O(runs of all snapshots).
    template <class F>
    void visit_kept_cells(F&& f, Where where = Where::current()) const {
        for (const detail::KeptCells* kept : own().table(where).snapshots().in_place())
            kept->runs.for_each(Position{0}, to_end, f);
    }

    /// Sets cells aside for the next `tokens` tokens of s, beyond what s has, in place of an earlier promise: `begin`
    /// does not refuse these with `full`. Refuses with `full` if too few cells are free. What s gives up (in a `drop`,
    /// when it goes back, or when it forgets) goes back to the promise, up to its size. So a sequence whose window
    /// forgets needs a promise of no more than what the window keeps and a batch, and gets none of more. That holds as
    /// long as nothing else owns what s forgets.
    ///
    /// The promise ends when s loses all its tokens, or by a promise of 0. It promises cells, not the memory of
    /// `initial_cells`. O(1). The first one allocates 8 bytes for each sequence.
    Result<void> promise(Sequence s, std::int32_t tokens, Where where = Where::current()) {
        return detail::perform(own(), op::Promise{s, tokens}, where);
    }
    /// How many cells are set aside for s. O(1).
    std::int32_t promised(Sequence s, Where where = Where::current()) const {
        static_cast<void>(own().runs(s, where)); // checks s
        return own().table().promises().cells(s);
    }

    /// Gives the memory of keys and values in cells from `cells` on back to the operating system: the cache keeps these
    /// cells, and they have memory again once they are written. Refuses with `full` if one of them is in use; after
    /// `defragment`, none is from `cells() - statistics().free` on. Addresses and `bytes()` stay. For `HostBackend` on
    /// Linux, and memory that the cache allocated; elsewhere it changes nothing. Whole pages of the system (usually 4
    /// KiB, or 2 MiB) go back: `PermutedV` has its values in strips, of which many cells are needed to fill one.
    /// O(cells / 64 + bytes given back).
    Result<void> shrink_to(Cell cells, Where where = Where::current()) {
        const detail::Caller caller{where};
        own().state(where).expect_no_pass("shrink_to");
        CELLAR_EXPECTS(cells >= 0, "shrink_to: ", cells, " cells, expected 0 or more");
        const Cell all = own().cells();
        if (cells >= all) return {};
        if (own().table().free().used_runs(cells, all).next().count != 0) return Reason::full;
        own().state().uncommit(cells);
        return {};
    }

private:
    TheCache& own() { return static_cast<TheCache&>(*this); }
    const TheCache& own() const { return static_cast<const TheCache&>(*this); }
};

} // namespace cellar
