// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/book/cell_table.hpp>
#include <cellar/book/kept_cells.hpp>

#include <cstdint>
#include <memory>
#include <source_location>
#include <utility>

namespace cellar {

struct MemoryAccess;

/// What a sequence of a memory with cells remembered over positions [from, to), owned apart from the sequence:
/// whatever happens to the sequence or to others, it does not change. It owns cells of the memory's pool, in place, as
/// a sequence does. Its destructor gives them up.
///
/// Move-only. It may outlive its memory, and can then only be destroyed or assigned to. It is used by the thread that
/// uses the memory.
class CellSnapshot {
public:
    CellSnapshot(CellSnapshot&&) noexcept = default;
    CellSnapshot& operator=(CellSnapshot&& other) noexcept {
        if (this == &other) return *this;
        release();
        kept_ = std::move(other.kept_);
        return *this;
    }
    ~CellSnapshot() { release(); }

    /// Where it begins. `restore` takes what lies below from the sequence itself. 0 if the memory has a window that had
    /// moved on from position 0: the snapshot then has all that the window keeps, and needs nothing of the sequence.
    Position from(const std::source_location& where = std::source_location::current()) const {
        return kept(where).from;
    }
    /// Where it ends: the position of the next token.
    Position to(const std::source_location& where = std::source_location::current()) const { return kept(where).to; }

    /// How many tokens it owns.
    std::int32_t tokens(const std::source_location& where = std::source_location::current()) const {
        return kept(where).runs.tokens();
    }

private:
    friend struct MemoryAccess;

    explicit CellSnapshot(std::unique_ptr<detail::KeptCells> kept) : kept_{std::move(kept)} {}

    void release() noexcept {
        if (kept_ != nullptr && kept_->table != nullptr) kept_->table->release(*kept_);
    }

    detail::KeptCells& kept(const std::source_location& where) const {
        CELLAR_EXPECTS_AT(where, kept_ != nullptr, "the snapshot was moved from, expected one that was not");
        CELLAR_EXPECTS_AT(where, kept_->table != nullptr,
                          "the snapshot's memory was destroyed, expected it to live as long as its snapshots are used");
        return *kept_;
    }

    /// What it owns in this table; a violation if it is of another one.
    detail::KeptCells& kept_in(const detail::CellTable& table, const char* operation) const {
        detail::KeptCells& kept = this->kept(std::source_location::current());
        CELLAR_EXPECTS(kept.table == &table, operation, ": the snapshot [", kept.from, ", ", kept.to,
                       ") is of another memory, which has ", kept.table->cells(),
                       " cells, expected one of this memory, ", "which has ", table.cells());
        return kept;
    }

    std::unique_ptr<detail::KeptCells> kept_;
};

} // namespace cellar
