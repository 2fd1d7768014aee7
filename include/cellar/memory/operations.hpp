// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/offload_to.hpp>

#include <cstdint>
#include <optional>

/// The operations of memories, as values: what a member function does, and its arguments. `memory.prepare(operation)`
/// decides and reserves, `memory.finish(prepared)` carries it out; see `Performs`. `Snapshot` is that of the memory.
///
/// An operation refers to its batch or its snapshots, and keeps nothing.
namespace cellar::op {

/// Opens a pass.
struct Begin {
    Batch batch;
};

/// `to` shares what is kept of `from` below position `end`.
struct CopyPrefix {
    Sequence from;
    Sequence to;
    Position end;
};

/// Removes positions [begin, end). A memory that rotates no keys ignores `rotate_by`.
struct Remove {
    Sequence sequence;
    Position begin;
    Position end;
    std::optional<RotateBy> rotate_by = {};
};

/// The sequence goes back to position `to`.
struct Rewind {
    Sequence sequence;
    Position to;
};

/// Keeps positions [from, to) of a sequence as a snapshot.
struct Snapshot {
    Sequence sequence;
    Position from = Position{0};
    Position to = to_end;
    bool keeps_schedule = false; ///< a schedule for its end goes on; else it ends. Ignored by memories without any
    bool unchecked = false;      ///< also if the next token would not find all that it sees, as in one of several ranks
};

/// The sequence takes up the snapshot, up to position `to`.
template <class Snapshot>
struct Restore {
    Sequence sequence;
    const Snapshot& snapshot;
    Position to;
    bool unchecked = false; ///< see `Snapshot`
};

/// `parent` grows by `child`, which is empty afterwards.
template <class Snapshot>
struct Merge {
    Snapshot& parent;
    Snapshot& child;
};

/// The snapshot keeps positions below `at`; `finish` returns the rest.
template <class Snapshot>
struct Split {
    Snapshot& snapshot;
    Position at;
};

/// Moves a snapshot's data out of the memory. Never refuses.
template <class Snapshot>
struct Offload {
    Snapshot& snapshot;
    OffloadTo to = OffloadTo::host;
};

/// Brings it back.
template <class Snapshot>
struct Reload {
    Snapshot& snapshot;
};

/// Asks for a snapshot ahead of time, at a position that the sequence will reach.
struct Schedule {
    Sequence sequence;
    Position position;
};

/// Ends a schedule. Never refuses.
struct Unschedule {
    Sequence sequence;
    Position position;
};

/// Sets cells aside for the next tokens of a sequence, in place of what was promised to it before.
struct Promise {
    Sequence sequence;
    std::int32_t tokens;
};

/// Copies tokens of a sequence to cells of its own where that is needed so that its cells form pages.
struct FormPages {
    Sequence sequence;
    std::int32_t page_size;
};

/// Moves the cells in use together. Never refuses.
struct Defragment {};

} // namespace cellar::op
