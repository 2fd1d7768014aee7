// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/kept_table.hpp>

#include <cstdint>
#include <source_location>
#include <utility>

namespace cellar {

/// The tokens of a sequence of a memory with cells at positions [from, to), owned apart from the sequence: whatever
/// happens to the sequence or to others, it does not change. It owns cells of the memory's pool, in place, as a
/// sequence does, or, after `page_out`, a copy of their data. Its destructor gives them up.
///
/// Move-only. It may outlive its memory, and can then only be destroyed or assigned to. It is used by the thread that
/// uses the memory.
class CellSnapshot {
public:
    /// Where it begins. `restore` takes what lies below from the sequence itself. 0 if a pass that ends at `to()`
    /// forgets tokens: the snapshot then has all that such a pass keeps, and needs nothing of the sequence. Else where
    /// it was asked to begin. It lacks what the sequence had forgotten, and can be divided all the same.
    Position from(const std::source_location& where = std::source_location::current()) const {
        return detail::expect_kept(kept_, where).from;
    }
    /// Where it ends: the position of the next token.
    Position to(const std::source_location& where = std::source_location::current()) const {
        return detail::expect_kept(kept_, where).to;
    }

    /// How many tokens it owns.
    std::int32_t tokens(const std::source_location& where = std::source_location::current()) const {
        return detail::expect_kept(kept_, where).runs.tokens();
    }

    /// True after `page_out`.
    bool is_paged_out(const std::source_location& where = std::source_location::current()) const {
        return detail::expect_kept(kept_, where).is_paged_out();
    }

    /// Bytes of keys and values outside the memory's cells: 0 if it is in place.
    std::int64_t bytes(const std::source_location& where = std::source_location::current()) const {
        const detail::KeptCells& kept = detail::expect_kept(kept_, where);
        return kept.is_paged_out() ? kept.data->bytes() : 0;
    }

    /// For cellar itself.
    explicit CellSnapshot(detail::KeptCellsPointer kept) : kept_{std::move(kept)} {}

    /// What it owns in this table; a violation if it is of another one.
    detail::KeptCells& kept_in(const detail::KeptTable& table, const char* operation) const {
        detail::KeptCells& kept = detail::expect_kept(kept_, std::source_location::current());
        CELLAR_EXPECTS(kept.table == &table, operation, ": the snapshot [", kept.from, ", ", kept.to,
                       ") is of another memory, which has ", kept.table->cells(),
                       " cells, expected one of this memory, which has ", table.cells());
        return kept;
    }

private:
    detail::KeptCellsPointer kept_;
};

} // namespace cellar
