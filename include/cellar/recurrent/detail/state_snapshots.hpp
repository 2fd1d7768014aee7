// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/operations.hpp>
#include <cellar/memory/snapshots.hpp>
#include <cellar/recurrent/detail/offloaded_state.hpp>
#include <cellar/recurrent/detail/state_table.hpp>
#include <cellar/recurrent/detail/stored_states.hpp>
#include <cellar/recurrent/state_snapshot.hpp>

#include <utility>

namespace cellar::detail {

template <class State>
using SnapshotsOfStates =
    Snapshots<State, StateTable, StateSnapshot, OffloadedState<typename State::Store, typename State::Backend>,
              StoredStates<State>>;

/// The operations of a recurrent memory with snapshots. A state is that of all tokens before it: a later one takes the
/// place of an earlier one, and none is divided.
template <class State>
class StateSnapshots : public SnapshotsOfStates<State> {
    using Base = SnapshotsOfStates<State>;

public:
    explicit StateSnapshots(State& state) : Base{state, state.book.table()} {}

    using Base::finish;
    using Base::prepare;

    Result<op::Merge<StateSnapshot>> prepare(const op::Merge<StateSnapshot>& merge) {
        state_.expect_no_pass("merge");
        const KeptSlot& first = kept_of(merge.parent, "merge");
        const KeptSlot& second = kept_of(merge.child, "merge");
        CELLAR_EXPECTS(&first != &second, "merge: the snapshots are one and the same, expected two");
        CELLAR_EXPECTS(second.to >= first.to, "merge: the child ends at position ", second.to, ", expected at least ",
                       first.to, ", where the parent ends");
        return merge;
    }
    void finish(op::Merge<StateSnapshot>&& merge) noexcept { merge.parent = std::move(merge.child); }

    Result<StateSnapshot> prepare(const op::Split<StateSnapshot>& split) {
        state_.expect_no_pass("split");
        static_cast<void>(kept_of(split.snapshot, "split"));
        return Reason::cannot_split;
    }
    StateSnapshot finish(StateSnapshot&& rest) noexcept { return std::move(rest); } // never called: nothing is split

private:
    using Base::kept_of;
    using Base::state_;
};

} // namespace cellar::detail
