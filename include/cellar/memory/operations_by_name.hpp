// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/operations.hpp>

#include <cstdint>

namespace cellar {

/// The operations of what consists of several memories, by their names: of a hybrid, or of a memory on several ranks.
/// All memories carry an operation out, or none does. Each refuses and costs what it does in the memories: see `Cache`
/// and `RecurrentMemory`.
///
/// `Self` derives from it. It has `perform(operation, where)`, and `performs<Operation>`, which is false for operations
/// that its memories lack.
template <class Self, class Snapshot>
class OperationsByName {
public:
    /// `to` gives up what it has, and shares what all memories keep of `from` below position `end`. No data moves.
    /// Refuses with `cannot_rewind` if a recurrent memory keeps no state there, and with `cannot_resume` as `Cache`
    /// does.
    Result<void> copy_prefix(Sequence from, Sequence to, Position end, Where where = Where::current()) {
        return self().perform(op::CopyPrefix{from, to, end}, where);
    }

    /// Removes positions [begin, end) of s, and closes the gap. A recurrent memory only goes back, to a position where
    /// it keeps a state.
    Result<void> remove(Sequence s, Position begin, Position end, Where where = Where::current()) {
        return self().perform(op::Remove{s, begin, end}, where);
    }
    /// The same, and memories that rotate keys rotate those of later tokens back by `rotate_by` positions.
    Result<void> remove(Sequence s, Position begin, Position end, RotateBy rotate_by, Where where = Where::current()) {
        return self().perform(op::Remove{s, begin, end, rotate_by}, where);
    }

    /// What all memories store for s at positions [from, to), to be kept whatever happens to s. `to_end`: up to the
    /// next token of s. No data moves.
    Result<Snapshot> snapshot(Sequence s, Position from = Position{0}, Position to = to_end,
                              Where where = Where::current()) requires(Self::template performs<op::Snapshot>) {
        return self().perform(op::Snapshot{s, from, to}, where);
    }

    /// s takes up the snapshot, up to position `to`. A recurrent memory accepts nothing but the snapshot's end.
    Result<void> restore(Sequence s, const Snapshot& snapshot, Position to,
                         Where where = Where::current()) requires(Self::template performs<op::Restore<Snapshot>>) {
        return self().perform(op::Restore<Snapshot>{s, snapshot, to}, where);
    }
    /// The same, up to the snapshot's end.
    Result<void> restore(Sequence s, const Snapshot& snapshot,
                         Where where = Where::current()) requires(Self::template performs<op::Restore<Snapshot>>) {
        return restore(s, snapshot, snapshot.to(where), where);
    }

    /// The way back: s goes on at position `to`. Going to `next(s)` changes nothing.
    Result<void> rewind(Sequence s, Position to,
                        Where where = Where::current()) requires(Self::template performs<op::Rewind>) {
        return self().perform(op::Rewind{s, to}, where);
    }

    /// `parent` grows by `child`, which begins where `parent` ends, and is then as if moved from. Memories join what
    /// they have of both; a later window or state takes the place of the earlier.
    Result<void> merge(Snapshot& parent, Snapshot&& child,
                       Where where = Where::current()) requires(Self::template performs<op::Merge<Snapshot>>) {
        return self().perform(op::Merge<Snapshot>{parent, child}, where);
    }
    /// Divides a snapshot: it keeps positions below `at`, and the result has those from `at` on. A recurrent memory
    /// always refuses, and so does one with a window that had moved on.
    Result<Snapshot> split(Snapshot& snapshot, Position at,
                           Where where = Where::current()) requires(Self::template performs<op::Split<Snapshot>>) {
        return self().perform(op::Split<Snapshot>{snapshot, at}, where);
    }

    /// Moves what the snapshot owns out of the memories, to memory of its own. Throws `std::bad_alloc`, with nothing
    /// changed, if there is no memory for it.
    void offload(Snapshot& snapshot, OffloadTo to = OffloadTo::host,
                 Where where = Where::current()) requires(Self::template performs<op::Offload<Snapshot>>) {
        static_assert(Self::holds_data, "offload: no keys and values are here (a backend is NoData), expected memory");
        self().perform(op::Offload<Snapshot>{snapshot, to}, where).value();
    }
    /// Brings a snapshot that is offloaded back into cells and slots. Blocks.
    Result<void> reload(Snapshot& snapshot,
                        Where where = Where::current()) requires(Self::template performs<op::Reload<Snapshot>>) {
        static_assert(Self::holds_data, "reload: no keys and values are here (a backend is NoData), expected memory");
        return self().perform(op::Reload<Snapshot>{snapshot}, where);
    }

    /// Asks for a snapshot ahead of time, in all memories that forget. Others have nothing to do. See `Cache::schedule`
    /// and `RecurrentMemory::schedule`.
    Result<void> schedule(Sequence s, Position p, Where where = Where::current()) {
        return self().perform(op::Schedule{s, p}, where);
    }
    /// Ends a schedule. Does nothing where there is none for s at p.
    void unschedule(Sequence s, Position p, Where where = Where::current()) {
        self().perform(op::Unschedule{s, p}, where).value();
    }

    /// Sets cells aside for the next `tokens` tokens of s, in all memories that have cells. See `Cache::promise`.
    Result<void> promise(Sequence s, std::int32_t tokens, Where where = Where::current()) {
        return self().perform(op::Promise{s, tokens}, where);
    }
    /// In all memories that have cells of tokens. See `Cache::form_pages`.
    Result<void> form_pages(Sequence s, std::int32_t page_size, Where where = Where::current()) {
        return self().perform(op::FormPages{s, page_size}, where);
    }
    /// Defragments all memories that have cells, or none if one has no memory for it.
    void defragment(Where where = Where::current()) requires(Self::template performs<op::Defragment>) {
        self().perform(op::Defragment{}, where).value();
    }

private:
    Self& self() { return static_cast<Self&>(*this); }
};

} // namespace cellar
