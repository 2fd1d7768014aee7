// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace property {

/// A token of a batch, relative to the newest token of its sequence, earlier ones of the batch included: 0 follows it,
/// -1 has the same position, 1 leaves a gap.
struct RelativeToken {
    int sequence = 0;
    int offset = 0;
    int group = -1; ///< tokens of the same group and sequence see one another
    bool stored = true;
};

enum class Operation {
    pass,
    remove,
    copy_prefix,
    fan_out,
    defragment,
    reserve,
    snapshot,
    restore,
    rewind,
    split,
    merge,
    offload,
    reload,
    release,
    schedule,
    unschedule
};

/// One operation on a cache as plain data, so that a failing series can be shrunk and printed. Positions count back
/// from the newest token, so that a step keeps its meaning when earlier steps are left out.
struct Step {
    Operation operation = Operation::pass;
    int sequence = 0;      ///< remove, copies, snapshot: the source; restore, rewind: the target
    int target = 0;        ///< copy_prefix: the target; fan_out: how many sequences
    int back = 0;          ///< remove: begin; else the length, the end or the place; counted back from the end
    int length = 0;        ///< remove: number of positions, below 0 for all the rest; reserve: tokens; snapshot: where
                           ///< it begins, counted back from its end, below 0 for position 0; schedule: how far ahead
    bool committed = true; ///< pass: false if it is dropped
    int style = 0; ///< pass: how rows are put, and which mask is read; remove: from 4 on, `RotateBy{style - 4}`;
                   ///< else a number for one of the snapshots
    std::vector<RelativeToken> tokens; ///< pass
};

inline std::ostream& operator<<(std::ostream& out, const Step& step) {
    switch (step.operation) {
    case Operation::pass:
        out << (step.committed ? "commit" : "drop") << " a pass in style " << step.style << " of";
        for (const RelativeToken& t : step.tokens)
            out << " s" << t.sequence << (t.offset < 0 ? "" : "+") << t.offset
                << (t.group < 0 ? "" : " (group " + std::to_string(t.group) + ")") << (t.stored ? "" : " (not stored)");
        return out;
    case Operation::remove:
        return out << "remove " << step.length << " from s" << step.sequence << ", " << step.back << " back, style "
                   << step.style;
    case Operation::copy_prefix:
        return out << "copy s" << step.sequence << " except the last " << step.back << " to s" << step.target;
    case Operation::fan_out:
        return out << "copy s" << step.sequence << " except the last " << step.back << " to " << step.target
                   << " sequences";
    case Operation::defragment:
        return out << "defragment";
    case Operation::reserve:
        return out << "reserve " << step.length;
    case Operation::snapshot:
        return out << "snapshot of s" << step.sequence << ", the last " << step.length << ", " << step.back << " back";
    case Operation::restore:
        return out << "restore snapshot " << step.style << " to s" << step.sequence << ", " << step.back << " back";
    case Operation::rewind:
        return out << "rewind s" << step.sequence << " by " << step.back;
    case Operation::split:
        return out << "split snapshot " << step.style << ", " << step.back << " back";
    case Operation::merge:
        return out << "merge snapshot " << step.style;
    case Operation::offload:
        return out << "offload snapshot " << step.style;
    case Operation::reload:
        return out << "reload snapshot " << step.style;
    case Operation::release:
        return out << "release snapshot " << step.style;
    case Operation::schedule:
        return out << "schedule a snapshot of s" << step.sequence << ", " << step.length << " ahead";
    case Operation::unschedule:
        return out << "unschedule snapshot " << step.style << " of s" << step.sequence;
    }
    return out;
}

} // namespace property
