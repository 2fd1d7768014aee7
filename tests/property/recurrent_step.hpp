// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_states.hpp"

#include <rapidcheck.h>

#include <ostream>
#include <vector>

namespace property::recurrent {

/// A token of a batch, relative to the previous token of its sequence: 1 follows it, 0 has the same position, -1 and 2
/// do not continue the sequence.
struct RelativeToken {
    int sequence = 0;
    int offset = 1;
};

enum class Operation {
    pass,
    remove,
    copy_prefix,
    checkpoint,
    schedule,
    reserve,
    set_initial,
    snapshot,
    restore,
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
    int target = 0;
    int back = 0;   ///< remove: begin; copy_prefix: the length; set_initial: the values
    int length = 0; ///< remove: number of positions, 0 for all the rest; schedules: how far ahead; reserve: tokens
    int style = 0;  ///< pass: committed or dropped, and how states are read and written
    std::vector<RelativeToken> tokens;

    bool committed() const { return style % 5 != 4; }
    bool in_place() const { return style % 2 == 1; }
};

inline std::ostream& operator<<(std::ostream& out, const Step& step) {
    constexpr const char* names[] = {"pass",    "remove",      "copy_prefix", "checkpoint", "schedule",
                                     "reserve", "set_initial", "snapshot",    "restore",    "offload",
                                     "reload",  "release",     "merge",       "split",      "unschedule"};
    out << names[static_cast<int>(step.operation)] << " s" << step.sequence << " -> s" << step.target << ", back "
        << step.back << ", length " << step.length << ", style " << step.style << ":";
    for (const RelativeToken& t : step.tokens) out << " s" << t.sequence << '+' << t.offset;
    return out;
}

inline rc::Gen<int> number(int from, int to) {
    return rc::gen::inRange(from, to + 1);
}

/// Mostly tokens that continue their sequences; one batch in eight may have others. Half of the batches interleave
/// their sequences, which then have equally many tokens, give or take one.
inline rc::Gen<std::vector<RelativeToken>> tokens(int sequences, int max_tokens) {
    return rc::gen::exec([=] {
        const int count = *number(0, max_tokens);
        const bool may_fail = *number(0, 7) == 7;
        const bool interleaved = *number(0, 1) == 1;
        const int distinct = *number(1, sequences);
        const int first = *number(0, sequences - 1);
        std::vector<RelativeToken> batch;
        for (int i = 0; i < count; ++i) {
            const int kind = *number(0, 19);
            RelativeToken token{(first + (interleaved ? i % distinct : *number(0, distinct - 1))) % sequences, 1};
            if (kind >= 18) token.offset = 0;
            if (kind < 2 && may_fail) token.offset = kind == 0 ? -1 : 2;
            batch.push_back(token);
        }
        return batch;
    });
}

inline rc::Gen<Step> step(int sequences, int max_tokens) {
    return rc::gen::exec([=] {
        Step s;
        s.operation = *rc::gen::weightedElement<Operation>({{12, Operation::pass},
                                                            {4, Operation::remove},
                                                            {4, Operation::copy_prefix},
                                                            {2, Operation::checkpoint},
                                                            {2, Operation::schedule},
                                                            {1, Operation::unschedule},
                                                            {1, Operation::reserve},
                                                            {1, Operation::set_initial},
                                                            {3, Operation::snapshot},
                                                            {3, Operation::restore},
                                                            {2, Operation::offload},
                                                            {1, Operation::reload},
                                                            {2, Operation::merge},
                                                            {1, Operation::split},
                                                            {1, Operation::release}});
        s.sequence = *number(0, sequences - 1);
        s.target = *number(0, sequences - 1);
        s.back = *number(0, 12);
        s.length = *number(0, 8);
        s.style = *number(0, 19);
        if (s.operation == Operation::pass) s.tokens = *tokens(sequences, max_tokens);
        return s;
    });
}

inline rc::Gen<naive::StateSetup> setups() {
    return rc::gen::exec([] {
        naive::StateSetup s;
        s.sequences = *number(1, 5);
        s.batch = *number(1, 14);
        s.rollback = *rc::gen::element(0, 1, 2, 3, 4, 12);
        s.checkpoints = *rc::gen::element(0, 1, 2, 3, 4, 9);
        s.keeps_newest = *number(0, 3) == 3;
        if (s.checkpoints > 0) s.interval = *number(0, 6);
        s.refuses_unequal = *number(0, 5) == 5;
        s.snapshots = *number(0, 4);
        return s;
    });
}

/// Up to `length` steps. `max_tokens`: the longest batch that is accepted; some batches have one token more.
inline rc::Gen<std::vector<Step>> steps(int length, int sequences, int max_tokens) {
    return rc::gen::resize(length, rc::gen::container<std::vector<Step>>(
                                       rc::gen::resize(rc::kNominalSize, step(sequences, max_tokens + 1))));
}

} // namespace property::recurrent
