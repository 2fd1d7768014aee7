// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstddef>
#include <memory>

namespace cellar::detail {

class StateTable;

/// The state that a snapshot owns: a slot, as a sequence owns its own, or, if it is paged out, data. `StateTable` fills
/// it in.
struct KeptSlot {
    bool is_paged_out() const { return data != nullptr; }

    Position to;                     ///< the position of the next token; 0: no token, and no slot
    Slot slot = zero_slot;           ///< nothing writes it
    std::unique_ptr<PagedData> data; ///< null if not paged out
    StateTable* table = nullptr;     ///< null before the state is owned, and after the table is destroyed
    std::size_t index = 0;           ///< among those of the table
};

using KeptSlotPointer = KeptPointer<KeptSlot>;

} // namespace cellar::detail
