// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <ostream>
#include <vector>

namespace property {

/// A token of a batch, placed relative to the newest token of its sequence (those before it in the
/// batch count): 0 follows it, -1 has the same position, 1 leaves a gap.
struct Placed {
    int sequence = 0;
    int offset = 0;
    bool bidirectional = false;
};

enum class Verb { pass, remove, copy_prefix, fan_out, defragment, reserve };

/// One operation on a cache as plain data, so that a failing series of them can be made smaller and
/// printed. Positions count back from the newest token, so that a step keeps its meaning when those
/// before it are left out.
struct Step {
    Verb verb = Verb::pass;
    int sequence = 0;           ///< remove, copy_prefix, fan_out: the source
    int target = 0;             ///< copy_prefix: the target; fan_out: how many sequences
    int back = 0;               ///< remove: begin; copies: the length; counted back from the end
    int length = 0;             ///< remove: how many positions, below 0: all the rest; reserve
    bool committed = true;      ///< pass: otherwise it is dropped
    int style = 0;              ///< pass: how rows are handed over, and which mask is read
    std::vector<Placed> tokens; ///< pass
};

inline std::ostream& operator<<(std::ostream& out, const Step& step) {
    switch (step.verb) {
    case Verb::pass:
        out << (step.committed ? "commit" : "drop") << " a pass in style " << step.style << " of";
        for (const Placed& t : step.tokens)
            out << " s" << t.sequence << (t.offset < 0 ? "" : "+") << t.offset
                << (t.bidirectional ? " (bidirectional)" : "");
        return out;
    case Verb::remove:
        return out << "remove " << step.length << " from s" << step.sequence << ", " << step.back << " back";
    case Verb::copy_prefix:
        return out << "copy s" << step.sequence << " but for " << step.back << " to s" << step.target;
    case Verb::fan_out:
        return out << "copy s" << step.sequence << " but for " << step.back << " to " << step.target << " sequences";
    case Verb::defragment:
        return out << "defragment";
    case Verb::reserve:
        return out << "reserve " << step.length;
    }
    return out;
}

} // namespace property
