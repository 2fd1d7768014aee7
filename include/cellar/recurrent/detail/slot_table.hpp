// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/recurrent/kept_state.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// How many sequences keep each slot, and which slots are free. A slot taken by a pass is neither, until the pass keeps
/// it or gives it back. Only the constructor allocates.
class SlotTable {
public:
    explicit SlotTable(Slot slots) : records_{static_cast<std::size_t>(slots)}, free_{static_cast<std::size_t>(slots)} {
        records_.resize(static_cast<std::size_t>(slots));
        for (Slot slot = slots; slot-- > 0;) free_.push_back(slot);
    }
    static constexpr std::int64_t bytes_for(Slot slots) { return bytes_of<Record>(slots) + bytes_of<Slot>(slots); }

    Slot slots() const { return static_cast<Slot>(records_.size()); }
    Slot free() const { return static_cast<Slot>(free_.size()); }
    /// Slots kept as checkpoints; a shared one counts once.
    Slot checkpoints() const { return checkpoints_; }

    bool is_current(StateHandle handle) const {
        return handle.slot >= 0 && handle.slot < slots() && record(handle.slot).kept > 0
               && generation(handle.slot) == handle.generation;
    }
    /// Increases each time the slot becomes free.
    std::int64_t generation(Slot slot) const { return record(slot).generation; }
    /// When the slot became a checkpoint, on a clock that counts checkpoints.
    std::int64_t marked_at(Slot slot) const { return record(slot).marked_at; }

    /// Takes the free slot that was freed last. There must be one.
    Slot take() {
        const Slot slot = free_.back();
        free_.pop_back();
        return slot;
    }

    /// Undoes the latest `take` that was not undone yet.
    void give_back(Slot slot) { free_.push_back(slot); }

    /// One more sequence keeps the slot.
    void keep(Slot slot) { ++record(slot).kept; }

    /// One sequence less keeps it. A slot that none keeps becomes free.
    void release(Slot slot) {
        if (--record(slot).kept != 0) return;
        ++record(slot).generation;
        free_.push_back(slot);
    }

    /// One more sequence keeps it as a checkpoint.
    void mark(Slot slot) {
        if (record(slot).marks++ != 0) return;
        record(slot).marked_at = ++clock_;
        ++checkpoints_;
    }

    /// One sequence less keeps it as a checkpoint.
    void unmark(Slot slot) {
        if (--record(slot).marks == 0) --checkpoints_;
    }

private:
    struct Record {
        std::int32_t kept = 0;
        std::int32_t marks = 0;
        std::int64_t generation = 0;
        std::int64_t marked_at = 0;
    };

    Record& record(Slot slot) { return records_[static_cast<std::size_t>(slot)]; }
    const Record& record(Slot slot) const { return records_[static_cast<std::size_t>(slot)]; }

    ReservedList<Record> records_;
    ReservedList<Slot> free_; // a stack
    Slot checkpoints_ = 0;
    std::int64_t clock_ = 0;
};

} // namespace cellar::detail
