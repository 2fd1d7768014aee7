// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../property/step.hpp"
#include "whole.hpp"

#include <map>
#include <memory>
#include <ostream>
#include <vector>

namespace property::hybrid {

enum class Operation {
    pass,
    remove,
    copy_prefix,
    write,
    checkpoint,
    schedule,
    defragment,
    reserve,
    snapshot,
    restore,
    rewind,
    offload,
    reload,
    release,
    merge,
    split,
    unschedule
};

/// One operation as plain data. Positions count back from the newest token.
struct Step {
    Operation operation = Operation::pass;
    int sequence = 0;
    int target = 0; ///< copy_prefix: the other sequence; write: the sequence of a second input
    int back =
        0; ///< snapshot, restore: the end, counted back; remove: begin; copy_prefix: the length; write: the position, counted back from 6 ahead
    int length =
        0; ///< snapshot: its positions; restore, release: which; remove: how many positions; schedule: how far ahead; write, reserve: tokens
    int style = 0; ///< selects one of several variants
    std::vector<RelativeToken> tokens{};

    bool committed() const { return style % 5 != 4; }
    bool may_fail() const { return style % 7 >= 5; } ///< a batch that recurrent members may refuse
    bool to_the_end() const { return style % 3 == 0; }
    bool to_what_is_kept() const { return style % 5 >= 3; } ///< only to positions where recurrent members keep a state
};

inline std::ostream& operator<<(std::ostream& out, const Step& step) {
    constexpr const char* names[] = {"pass",       "remove",  "copy_prefix", "write",   "checkpoint", "schedule",
                                     "defragment", "reserve", "snapshot",    "restore", "rewind",     "offload",
                                     "reload",     "release", "merge",       "split",   "unschedule"};
    out << names[static_cast<int>(step.operation)] << ", s" << step.sequence << ", s" << step.target << ", back "
        << step.back << ", length " << step.length << ", style " << step.style << ":";
    for (const RelativeToken& t : step.tokens) out << " s" << t.sequence << (t.offset < 0 ? "" : "+") << t.offset;
    return out;
}

/// Runs the same steps on a hybrid and on the naive models of its members, and compares after each step.
class Trial {
public:
    /// `most`: the longest batch that all members accept.
    Trial(Whole& whole, Trace& trace, int sequences, int most, int look_every)
        : whole_{whole},
          trace_{trace},
          members_{whole.members()},
          sequences_{sequences},
          most_{most},
          look_every_{look_every} {}

    /// Throws at the first difference. The message lists the operations so far.
    void run(const std::vector<Step>& steps);

private:
    void take(const Step& step);
    void take_pass(const Step& step);
    void take_remove(const Step& step);
    void take_copy(const Step& step);
    void take_schedule(const Step& step);
    void take_snapshot(const Step& step);
    void take_restore(const Step& step);
    void take_rewind(const Step& step);
    void take_page(const Step& step);
    void take_merge(const Step& step);
    void take_split(const Step& step);
    void write(const Step& step);
    void reserve(const Step& step);
    void fill(const Batch& batch, int style, int layers);

    Batch placed(const Step& step);
    int next(int s) const;
    /// What position p of s means to a member: if inputs wait there, the end of all inputs.
    int past_inputs(const Member& m, int s, int p) const;
    bool can_resume(int s, int p) const;
    /// The last position up to p at which all recurrent members keep a state.
    int kept_state(int s, int p) const;

    /// The answer expected of an operation: the refusal of the first member that refuses.
    template <class Ask>
    HybridAnswer expected(Ask ask) const;
    void expect_answer(const HybridAnswer& answer, const HybridAnswer& expected) const;
    void settle() const;
    void compare(bool look) const;

    Whole& whole_;
    Trace& trace_;
    const std::vector<std::unique_ptr<Member>> members_;
    const int sequences_;
    const int most_;
    const int look_every_;
    std::vector<int> snapshots_;   ///< where they end
    std::map<int, int> scheduled_; ///< the last position that was scheduled for a sequence
    int done_ = 0;
    int next_value_ = 0;
};

} // namespace property::hybrid
