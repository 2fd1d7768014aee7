// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/kept_snapshot.hpp>
#include <cellar/recurrent/detail/kept_slots.hpp>

namespace cellar {

/// The state of a sequence after the tokens below position `to()`, owned apart from the sequence: whatever happens to
/// the sequence or to others, it does not change. It owns a slot of the memory, in place, or, after `offload`, a copy
/// of the state. Its destructor gives it up.
///
/// Move-only. It may outlive its memory, and can then only be destroyed or assigned to. It is used by the thread that
/// uses the memory.
class StateSnapshot : public detail::KeptSnapshot<detail::KeptSlot> {
public:
    using KeptSnapshot::KeptSnapshot;

    /// Always 0: a state is that of all tokens before it, and needs nothing of the sequence.
    Position from(Where where = Where::current()) const {
        static_cast<void>(kept(where)); // checks that it owns one
        return Kept::from;
    }

    /// What it owns in this table; a violation if it is of another one.
    Kept& kept_in(const detail::KeptSlots& table, const char* operation) const {
        Kept& own = kept();
        CELLAR_EXPECTS(own.table == &table, operation, ": the snapshot, up to position ", own.to,
                       ", is of another memory, which has ", own.table->slots(),
                       " slots, expected one of this memory, which has ", table.slots());
        return own;
    }
};

} // namespace cellar
