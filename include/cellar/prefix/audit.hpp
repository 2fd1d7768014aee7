// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/prefix/detail/prefix_audit.hpp>
#include <cellar/prefix/prefix_tree.hpp>

#include <string>

namespace cellar {

/// Recounts a prefix tree: its structure, its snapshots and what they need, its pins, its counts, the order of
/// eviction. Returns the first contradiction, or an empty string. For tests and debugging. O(nodes log nodes + children
/// of a node squared).
template <PrefixTreeMemory M>
std::string audit(const PrefixTree<M>& tree, Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::PrefixAudit<M>{MemoryAccess::state(tree)}.first();
}

} // namespace cellar
