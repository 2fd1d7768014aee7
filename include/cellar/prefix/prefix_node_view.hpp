// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>
#include <span>

namespace cellar {

/// A node of a prefix tree, as `PrefixTree::visit` shows it: tokens that follow those of its parent. It is valid during
/// the call.
template <class M>
struct PrefixNodeView {
    std::uint64_t salt;
    std::span<const std::int32_t> tokens;
    Position begin; ///< of the first one
    int depth;      ///< how many nodes are above it
    /// What the tree keeps at its end, or null: `tokens()` and `visit_cells` of a cache's snapshot tell the cells.
    const SnapshotOf<M>* snapshot;
    std::int64_t bytes;      ///< that the snapshot takes, in place or offloaded
    std::int64_t pins;       ///< how many `PrefixPin`s hold it
    std::uint64_t last_used; ///< see `PrefixUse`
};

} // namespace cellar
