// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstddef>

namespace cellar::detail {

class StateTable;

/// The state that a snapshot owns, as a sequence owns its own. `StateTable` fills it in.
struct KeptSlot {
    Position to;                 ///< the position of the next token; 0: no token, and no slot
    Slot slot = zero_slot;       ///< nothing writes it
    StateTable* table = nullptr; ///< null before the state is owned, and after the table is destroyed
    std::size_t index = 0;       ///< among those of the table
};

using KeptSlotPointer = KeptPointer<KeptSlot>;

} // namespace cellar::detail
