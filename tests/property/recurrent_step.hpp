// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_states.hpp"

#include <rapidcheck.h>

#include <ostream>
#include <vector>

namespace property::recurrent {

/// A token of a batch, placed relative to the one of its sequence before it: 1 follows it, 0 has the same position, -1
/// and 2 do not go on from there.
struct Placed {
    int sequence = 0;
    int offset = 1;
};

enum class Verb { pass, remove, copy_prefix, checkpoint, schedule, reserve };

/// One operation as plain data. Positions count back from the newest token.
struct Step {
    Verb verb = Verb::pass;
    int sequence = 0;
    int target = 0;
    int back = 0;   ///< remove: begin; copy_prefix: the length
    int length = 0; ///< remove: how many positions, 0: all the rest; schedule: how far ahead; reserve: tokens
    int style = 0;  ///< pass: committed or dropped, and how states are read and written
    std::vector<Placed> tokens;

    bool committed() const { return style % 5 != 4; }
    bool in_place() const { return style % 2 == 1; }
};

inline std::ostream& operator<<(std::ostream& out, const Step& step) {
    constexpr const char* verbs[] = {"pass", "remove", "copy_prefix", "checkpoint", "schedule", "reserve"};
    out << verbs[static_cast<int>(step.verb)] << " s" << step.sequence << " -> s" << step.target << ", back "
        << step.back << ", length " << step.length << ", style " << step.style << ":";
    for (const Placed& t : step.tokens) out << " s" << t.sequence << '+' << t.offset;
    return out;
}

inline rc::Gen<int> number(int from, int to) {
    return rc::gen::inRange(from, to + 1);
}

/// Mostly tokens that follow; one batch in eight may have some that do not. Half of the batches take rotations, so that all
/// sequences have equally many.
inline rc::Gen<std::vector<Placed>> tokens(int sequences, int most) {
    return rc::gen::exec([=] {
        const int count = *number(0, most);
        const bool may_fail = *number(0, 7) == 7;
        const bool in_turn = *number(0, 1) == 1;
        const int members = *number(1, sequences);
        const int first = *number(0, sequences - 1);
        std::vector<Placed> batch;
        for (int i = 0; i < count; ++i) {
            const int kind = *number(0, 19);
            Placed token{(first + (in_turn ? i % members : *number(0, members - 1))) % sequences, 1};
            if (kind >= 18) token.offset = 0;
            if (kind < 2 && may_fail) token.offset = kind == 0 ? -1 : 2;
            batch.push_back(token);
        }
        return batch;
    });
}

inline rc::Gen<Step> step(int sequences, int most) {
    return rc::gen::exec([=] {
        Step s;
        s.verb = *rc::gen::weightedElement<Verb>({{12, Verb::pass},
                                                  {4, Verb::remove},
                                                  {4, Verb::copy_prefix},
                                                  {2, Verb::checkpoint},
                                                  {2, Verb::schedule},
                                                  {1, Verb::reserve}});
        s.sequence = *number(0, sequences - 1);
        s.target = *number(0, sequences - 1);
        s.back = *number(0, 12);
        s.length = *number(0, 8);
        s.style = *number(0, 19);
        if (s.verb == Verb::pass) s.tokens = *tokens(sequences, most);
        return s;
    });
}

inline rc::Gen<naive::StateSetup> setups() {
    return rc::gen::exec([] {
        naive::StateSetup s;
        s.sequences = *number(1, 5);
        s.batch = *number(1, 14);
        s.rollback = *number(0, 4);
        s.checkpoints = *rc::gen::element(0, 2, 3, 4, 5, 9);
        if (s.checkpoints > 0) s.interval = *number(0, 6);
        s.refuses_unequal = *number(0, 5) == 5;
        return s;
    });
}

/// Up to `length` steps. `most`: tokens of a batch; one too many now and then.
inline rc::Gen<std::vector<Step>> steps(int length, int sequences, int most) {
    return rc::gen::resize(
        length, rc::gen::container<std::vector<Step>>(rc::gen::resize(rc::kNominalSize, step(sequences, most + 1))));
}

} // namespace property::recurrent
