// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>

#include <utility>

namespace cellar {

/// Takes s out of the memory: all that it has goes to memory of the result's own, and s is empty. For a user who waits,
/// or who has to make room. Refuses as `snapshot` of the memory does (a state needs one of `StateLimits::snapshots` for
/// a moment), and throws `std::bad_alloc`, with nothing changed. Costs what `snapshot`, `offload` and `remove` cost:
/// each row is copied once, also those that s shares.
template <HasSnapshots M>
Result<SnapshotOf<M>> park(M& memory, Sequence s, OffloadTo to = OffloadTo::host, Where where = Where::current()) {
    const detail::Caller caller{where};
    auto parked = memory.snapshot(s);
    if (!parked) return parked;
    memory.offload(*parked, to);
    memory.remove(s, Position{0}, to_end).value(); // never refuses
    return parked;
}

/// s, which gives up what it has, goes on where the parked sequence was. `parked` is then as if moved from. Refuses as
/// `restore` of the memory does, with `full` for example, and changes nothing.
template <HasSnapshots M>
Result<void> unpark(M& memory, Sequence s, SnapshotOf<M>& parked, Where where = Where::current()) {
    const detail::Caller caller{where};
    const Result<void> restored = memory.restore(s, parked);
    if (restored) const SnapshotOf<M> done = std::move(parked);
    return restored;
}

} // namespace cellar
