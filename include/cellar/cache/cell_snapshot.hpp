// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/kept_table.hpp>
#include <cellar/memory/kept_snapshot.hpp>

#include <cstdint>
#include <utility>

namespace cellar {

/// The tokens of a sequence of a memory with cells at positions [from, to), owned apart from the sequence: whatever
/// happens to the sequence or to others, it does not change. It owns cells of the memory's pool, in place, as a
/// sequence does, or, after `offload`, a copy of their data. Its destructor gives them up.
///
/// Move-only. It may outlive its memory, and can then only be destroyed or assigned to. It is used by the thread that
/// uses the memory.
class CellSnapshot : public detail::KeptSnapshot<detail::KeptCells> {
public:
    using KeptSnapshot::KeptSnapshot;

    /// Where it begins. `restore` takes what lies below from the sequence itself. 0 if a pass that ends at `to()`
    /// forgets tokens: the snapshot then has all that such a pass keeps, and needs nothing of the sequence. Else where
    /// it was asked to begin. It lacks what the sequence had forgotten, and can be divided all the same.
    Position from(Where where = Where::current()) const { return kept(where).from; }

    /// How many tokens it owns.
    std::int32_t tokens(Where where = Where::current()) const { return kept(where).rows(); }

    /// Calls f(position, cell, count) for its tokens, in the order of positions: positions [position, position + count)
    /// lie in cells [cell, cell + count); or, if it is offloaded, in these rows of its data. O(runs).
    template <class F>
    void visit_cells(F&& f, Where where = Where::current()) const {
        kept(where).runs.for_each(Position{0}, to_end, std::forward<F>(f));
    }

    /// As `Cache::altered_from`, of what it owns.
    Position altered_from(Where where = Where::current()) const { return kept(where).altered; }

    /// What it owns in this table; a violation if it is of another one.
    Kept& kept_in(const detail::KeptTable& table, const char* operation) const {
        Kept& own = kept();
        CELLAR_EXPECTS(own.table == &table, operation, ": the snapshot [", own.from, ", ", own.to,
                       ") is of another memory, which has ", own.table->cells(),
                       " cells, expected one of this memory, which has ", table.cells());
        return own;
    }
};

} // namespace cellar
