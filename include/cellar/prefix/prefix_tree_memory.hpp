// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/two_phase.hpp>

#include <concepts>

namespace cellar {

namespace detail {

template <class M>
concept has_restore = requires(M& m, Sequence s, Position p, const SnapshotOf<M>& snapshot) {
    { m.restore(s, snapshot, p) } -> std::same_as<Result<void>>;
};
template <class M>
concept tells_ends_of_snapshots = requires(const SnapshotOf<M>& snapshot) {
    { snapshot.from() } -> std::same_as<Position>;
    { snapshot.to() } -> std::same_as<Position>;
};

} // namespace detail

/// A memory that a prefix tree can use:
///
/// - `snapshot(s, from, to)`: what s stores at positions [from, to) (`Result<SnapshotOf<M>>`). The snapshot ends at
///   `to`, and begins at `from`, or at 0 if it needs nothing of the sequence. It refuses what could not be restored up
///   to `to` after the tokens below `from`.
/// - `restore(s, snapshot, to)`: gives s the content of the snapshot below position `to` (`Result<void>`).
/// - `split(snapshot, at)`, optional: the snapshot keeps what lies below `at`, the result has the rest.
/// - `offload(snapshot, place)` and `reload(snapshot)`, optional: needed for `PrefixLimits::offloaded_bytes`. The place
///   is `PrefixLimits::offload_to`.
/// - `form_pages(s, page_size)`, optional: needed for `PrefixLimits::page`.
/// - `free_cells()`, `cells_needed(batch)`, `cells_freed_by(s)`, `set_evictable(snapshot, evictable)` and
///   `evictable_cells()`, optional, as `Cache` has them: needed for `PrefixTree::evictable`.
/// - `visit_cells(s, f)`, optional, as `Cache` has it: `insert` then finds tokens that share a position.
/// - `altered_from(s)`, optional, as `Cache` has it: `insert` then refuses what a prefill would not give.
// clang-format off
template <class M>
concept PrefixTreeMemory =
    HasSnapshots<M> && detail::has_restore<M> && detail::tells_ends_of_snapshots<M>;
// clang-format on

} // namespace cellar
