// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/recurrent/detail/slot_table.hpp>

#include <cstdint>
#include <iterator>
#include <utility>

namespace cellar::detail {

class KeptSlots;

/// The state that a snapshot owns: a slot, as a sequence owns its own, or, if it is offloaded, data. `KeptSlots` fills
/// it in.
struct KeptSlot : Kept<KeptSlots> {
    explicit KeptSlot(Position the_to) : to{the_to} {}

    std::int32_t rows() const { return to.value == 0 ? 0 : 1; }

    static constexpr Position from{0};
    Position to;           ///< the position of the next token; 0: no token, and no slot
    Slot slot = zero_slot; ///< nothing writes it
};

using KeptSlotPointer = KeptPointer<KeptSlot>;

/// What snapshots own: slots of the table in place, or, if they are offloaded, data of their own. Only `prepare`
/// functions allocate; `finish` cannot fail if the table has not changed in between.
class KeptSlots : public KeptLists<KeptSlots, KeptSlot> {
public:
    /// The table is at a fixed address, and has `limit` slots for snapshots.
    KeptSlots(SlotTable& slots, std::int32_t limit) : slots_{slots}, limit_{limit} {}

    Slot slots() const { return slots_.slots(); }

    /// For the state at position `to`. Refuses with `too_many_snapshots`.
    Result<KeptSlotPointer> prepare(Position to) {
        if (const Result<void> room = prepare_owner(); !room) return room.error();
        return KeptSlotPointer{new KeptSlot{to}};
    }
    /// Shares this slot.
    void finish(KeptSlot& kept, Slot slot) noexcept {
        kept.slot = slot;
        if (kept.rows() != 0) slots_.keep(slot);
        add(kept);
    }
    void give(const KeptSlot& kept) noexcept {
        if (kept.rows() != 0) slots_.release(kept.slot);
    }

    using Places = Slot;
    struct Rows {
        Places places = zero_slot;
    };

    Rows prepare_offload(const KeptSlot& kept) {
        prepare_adopt();
        return {kept.slot};
    }
    /// Gives up the slot. The state is in `data` from now on.
    void finish_offload(KeptSlot& kept, Rows&, UnownedData<OffloadedData> data) noexcept {
        release(kept);
        finish_adopt(kept, std::move(data));
    }

    /// Refuses with `too_many_snapshots`.
    Result<Rows> prepare_reload(const KeptSlot&) {
        if (const Result<void> room = prepare_owner(); !room) return room.error();
        return Rows{};
    }
    /// Takes a slot, which the state has yet to be written to. Returns the data.
    UnownedData<OffloadedData> finish_reload(KeptSlot& kept, Rows& rows) noexcept {
        UnownedData<OffloadedData> data = remove_with_data(kept);
        if (kept.rows() != 0) rows.places = slots_.take();
        finish(kept, rows.places);
        return data;
    }

private:
    // Room for one more.
    Result<void> prepare_owner() {
        if (std::ssize(in_place()) == limit_)
            return Refusal{
                .reason = Reason::too_many_snapshots, .needed = std::int64_t{limit_} + 1, .available = limit_};
        reserve_in_place();
        return {};
    }

    SlotTable& slots_;
    std::int32_t limit_;
};

} // namespace cellar::detail
