// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include "setting.hpp"
#include "step.hpp"

#include <rapidcheck.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace property {

// Numbers are drawn as indices that shrink towards 0, the simplest choice.

/// Mostly the first few sequences, so that they share and collide also where there are thousands.
inline rc::Gen<int> sequence_of(int sequences) {
    return rc::gen::mapcat(rc::gen::inRange(0, 4), [sequences](int kind) {
        return rc::gen::inRange(0, kind < 3 && sequences > 4 ? 4 : sequences);
    });
}

inline rc::Gen<int> offset() {
    return rc::gen::map(rc::gen::inRange(0, 20), [](int i) {
        constexpr int odd[] = {-1, -2, 1, -3, -4, -5, 2, -7, -9, 4};
        return i < 10 ? 0 : odd[i - 10];
    });
}

/// Half of the batches are of one sequence, and half follow on what is there, as a prompt does both.
inline rc::Gen<std::vector<Placed>> tokens(int sequences, int most) {
    const auto placed = rc::gen::apply(
        [](int sequence, int offset, int kind) {
            return Placed{sequence, offset, kind == 7};
        },
        sequence_of(sequences), offset(), rc::gen::inRange(0, 8));
    const auto any =
        rc::gen::resize(most, rc::gen::container<std::vector<Placed>>(rc::gen::resize(rc::kNominalSize, placed)));
    return rc::gen::apply(
        [](std::vector<Placed> batch, bool one, bool follows) {
            for (Placed& t : batch) {
                if (one) t.sequence = batch.front().sequence;
                if (follows) t.offset = 0;
            }
            return batch;
        },
        any, rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>());
}

inline rc::Gen<Verb> verb() {
    return rc::gen::weightedElement<Verb>({{60, Verb::pass},
                                           {14, Verb::remove},
                                           {14, Verb::copy_prefix},
                                           {3, Verb::fan_out},
                                           {6, Verb::defragment},
                                           {3, Verb::reserve}});
}

/// `most`: tokens in a batch; one more than the cache takes makes for refusals.
inline rc::Gen<Step> step(int sequences, int most) {
    return rc::gen::mapcat(verb(), [=](Verb verb) {
        const auto build = [verb](int sequence, int target, int back, int length, int kind,
                                  std::vector<Placed> tokens) {
            const bool committed = kind % 5 != 4;
            return Step{verb, sequence, target, back, length - 1, committed, kind, std::move(tokens)};
        };
        const auto number = [](int end) { return rc::gen::inRange(0, end); };
        const auto none = rc::gen::just(std::vector<Placed>{});
        if (verb == Verb::pass)
            return rc::gen::apply(build, rc::gen::just(0), rc::gen::just(0), rc::gen::just(0), rc::gen::just(0),
                                  number(60), tokens(sequences, most));
        if (verb == Verb::fan_out)
            return rc::gen::apply(build, sequence_of(sequences), number(sequences + 1), number(20), rc::gen::just(0),
                                  rc::gen::just(0), none);
        return rc::gen::apply(build, sequence_of(sequences), sequence_of(sequences), number(20), number(10),
                              rc::gen::just(0), none);
    });
}

/// Small caches, so that they are often full, torn and shared. `size`: that of a window that has it
/// in its type, 0 for one that takes it at run time.
inline rc::Gen<Setting> settings(naive::Sees sees, int size, bool can_shift) {
    return rc::gen::exec([=] {
        const auto number = [](int from, int to) { return *rc::gen::inRange(from, to + 1); };
        Setting s;
        naive::Window& w = s.setup.window;
        w.sees = sees;
        if (sees != naive::Sees::everything) {
            w.size = size != 0 ? size : number(1, 6);
            w.retention = number(0, 1) * (w.size + number(0, 3));
            w.sinks = number(0, 1) * number(0, 3);
        }
        s.setup.sequences = number(1, 5);
        s.setup.capacity = sees == naive::Sees::everything ? number(1, 8) : number(3, 14);
        s.setup.batch = number(1, 6);
        s.setup.padding = 1 << number(0, 3);
        s.setup.can_shift = can_shift;
        s.contiguous = number(0, 1) == 1;
        constexpr int every[] = {1, 1, 4, 20};
        s.look_every = every[number(0, 3)];
        return s;
    });
}

/// The same with other luck, so that combinations of policies draw different series from one seed.
template <class T>
rc::Gen<T> salted(std::uint64_t salt, rc::Gen<T> gen) {
    return [=](const rc::Random& random, int size) { return gen(rc::Random{rc::Random{random}.next() ^ salt}, size); };
}

/// Up to `length` steps.
inline rc::Gen<std::vector<Step>> steps(int length, int sequences, int most) {
    return rc::gen::resize(
        length, rc::gen::container<std::vector<Step>>(rc::gen::resize(rc::kNominalSize, step(sequences, most))));
}

} // namespace property
