// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/slot_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cellar {

/// A state that was asked for, and which of the slot's successive states it is: no handle outlives its state unnoticed.
/// Without arguments, of none.
struct StateHandle {
    Slot slot = zero_slot;
    std::int64_t generation = 0;

    constexpr bool operator==(const StateHandle&) const = default;
};

/// How often each slot is kept, and which are free. A slot that a pass has taken is neither, until the pass keeps it or
/// gives it back. Nothing allocates but the constructor.
class SlotTable {
public:
    explicit SlotTable(Slot slots) : records_(static_cast<std::size_t>(slots)) {
        free_.reserve(records_.size());
        for (Slot slot = slots; slot-- > 0;) free_.push_back(slot);
    }

    Slot slots() const { return static_cast<Slot>(records_.size()); }
    Slot free() const { return static_cast<Slot>(free_.size()); }
    /// Slots that are kept as checkpoints, however many sequences share them.
    Slot checkpoints() const { return checkpoints_; }

    bool is_current(StateHandle handle) const {
        return handle.slot >= 0 && handle.slot < slots() && generation(handle.slot) == handle.generation;
    }
    /// Changes when the slot is free again.
    std::int64_t generation(Slot slot) const { return record(slot).generation; }
    /// The time at which the slot became a checkpoint.
    std::int64_t marked_at(Slot slot) const { return record(slot).marked_at; }

    /// Takes the slot that was freed last. There must be one.
    Slot take() {
        const Slot slot = free_.back();
        free_.pop_back();
        return slot;
    }

    /// Undoes the last `take` that is not undone yet.
    void give_back(Slot slot) { free_.push_back(slot); }

    /// One more that keeps the slot.
    void keep(Slot slot) { ++record(slot).kept; }

    /// One less; a slot that nobody keeps is free.
    void release(Slot slot) {
        if (--record(slot).kept != 0) return;
        ++record(slot).generation;
        free_.push_back(slot);
    }

    /// One more that keeps it as a checkpoint.
    void mark(Slot slot) {
        if (record(slot).marks++ != 0) return;
        record(slot).marked_at = ++clock_;
        ++checkpoints_;
    }

    /// One less.
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

    std::vector<Record> records_;
    std::vector<Slot> free_; // the last is taken next
    Slot checkpoints_ = 0;
    std::int64_t clock_ = 0;
};

} // namespace cellar
