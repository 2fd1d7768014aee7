// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/recurrent/detail/kept_slot.hpp>
#include <cellar/recurrent/detail/state_table.hpp>

#include <cstdint>
#include <source_location>
#include <utility>

namespace cellar {

/// The state of a sequence after the tokens below position `to()`, owned apart from the sequence: whatever happens to
/// the sequence or to others, it does not change. It owns a slot of the memory, in place, or, after `page_out`, a copy
/// of the state. Its destructor gives it up.
///
/// Move-only. It may outlive its memory, and can then only be destroyed or assigned to. It is used by the thread that
/// uses the memory.
class StateSnapshot {
public:
    /// Always 0: a state is that of all tokens before it, and needs nothing of the sequence.
    Position from(const std::source_location& where = std::source_location::current()) const {
        static_cast<void>(detail::expect_kept(kept_, where));
        return {0};
    }
    /// The position of the next token.
    Position to(const std::source_location& where = std::source_location::current()) const {
        return detail::expect_kept(kept_, where).to;
    }

    /// True after `page_out`.
    bool is_paged_out(const std::source_location& where = std::source_location::current()) const {
        return detail::expect_kept(kept_, where).is_paged_out();
    }

    /// Bytes outside the memory's slots: 0 if it is in place.
    std::int64_t bytes(const std::source_location& where = std::source_location::current()) const {
        const detail::KeptSlot& kept = detail::expect_kept(kept_, where);
        return kept.is_paged_out() ? kept.data->bytes() : 0;
    }

    /// For cellar itself.
    explicit StateSnapshot(detail::KeptSlotPointer kept) : kept_{std::move(kept)} {}

    /// What it owns in this table; a violation if it is of another one.
    detail::KeptSlot& kept_in(const detail::StateTable& table, const char* operation) const {
        detail::KeptSlot& kept = detail::expect_kept(kept_, std::source_location::current());
        CELLAR_EXPECTS(kept.table == &table, operation, ": the snapshot, up to position ", kept.to,
                       ", is of another memory, which has ", kept.table->slots().slots(),
                       " slots, expected one of this memory, which has ", table.slots().slots());
        return kept;
    }

private:
    detail::KeptSlotPointer kept_;
};

} // namespace cellar
