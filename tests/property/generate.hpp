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

// Choices are drawn as indices, which shrink towards 0, the simplest choice.

/// Mostly one of the first few sequences, so that they share and collide even among thousands.
inline rc::Gen<int> sequence_of(int sequences) {
    return rc::gen::mapcat(rc::gen::inRange(0, 4), [sequences](int kind) {
        return rc::gen::inRange(0, kind < 3 && sequences > 4 ? 4 : sequences);
    });
}

inline rc::Gen<int> offset() {
    return rc::gen::map(rc::gen::inRange(0, 20), [](int i) {
        constexpr int unusual[] = {-1, -2, 1, -3, -4, -5, 2, -7, -9, 4};
        return i < 10 ? 0 : unusual[i - 10];
    });
}

/// Half of the batches have tokens of one sequence only, and half continue their sequences. A prompt does both. A
/// quarter is stored in part.
inline rc::Gen<std::vector<RelativeToken>> tokens(int sequences, int max_tokens) {
    const auto token = rc::gen::apply(
        [](int sequence, int offset, int kind, bool stored) {
            return RelativeToken{sequence, offset, kind < 6 ? -1 : kind - 6, stored};
        },
        sequence_of(sequences), offset(), rc::gen::inRange(0, 8), rc::gen::arbitrary<bool>());
    const auto any = rc::gen::resize(
        max_tokens, rc::gen::container<std::vector<RelativeToken>>(rc::gen::resize(rc::kNominalSize, token)));
    return rc::gen::apply(
        [](std::vector<RelativeToken> batch, bool one, bool follows, int part) {
            for (RelativeToken& t : batch) {
                if (part < 3) t.stored = true;
                if (one) t.sequence = batch.front().sequence;
                if (follows) t.offset = 0;
            }
            return batch;
        },
        any, rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>(), rc::gen::inRange(0, 4));
}

inline rc::Gen<Operation> operation() {
    return rc::gen::weightedElement<Operation>({{60, Operation::pass},
                                                {14, Operation::remove},
                                                {14, Operation::copy_prefix},
                                                {3, Operation::fan_out},
                                                {6, Operation::defragment},
                                                {3, Operation::reserve},
                                                {8, Operation::snapshot},
                                                {10, Operation::restore},
                                                {3, Operation::rewind},
                                                {5, Operation::split},
                                                {6, Operation::merge},
                                                {6, Operation::offload},
                                                {2, Operation::reload},
                                                {3, Operation::release},
                                                {5, Operation::schedule},
                                                {2, Operation::unschedule}});
}

/// `max_tokens`: tokens in a batch. One more than the cache accepts leads to refusals.
inline rc::Gen<Step> step(int sequences, int max_tokens) {
    return rc::gen::mapcat(operation(), [=](Operation operation) {
        const auto build = [operation](int sequence, int target, int back, int length, int kind,
                                       std::vector<RelativeToken> tokens) {
            const bool committed = kind % 5 != 4;
            return Step{operation, sequence, target, back, length - 1, committed, kind, std::move(tokens)};
        };
        const auto number = [](int end) { return rc::gen::inRange(0, end); };
        const auto none = rc::gen::just(std::vector<RelativeToken>{});
        if (operation == Operation::pass)
            return rc::gen::apply(build, rc::gen::just(0), rc::gen::just(0), rc::gen::just(0), rc::gen::just(0),
                                  number(60), tokens(sequences, max_tokens));
        if (operation == Operation::fan_out)
            return rc::gen::apply(build, sequence_of(sequences), number(sequences + 1), number(20), rc::gen::just(0),
                                  rc::gen::just(0), none);
        return rc::gen::apply(build, sequence_of(sequences), sequence_of(sequences), number(20), number(10), number(8),
                              none);
    });
}

/// Small caches, which are often full, scattered and shared. `size`: the window's size if its type fixes it, else 0.
inline rc::Gen<Setting> settings(naive::WindowKind kind, int size, bool can_shift) {
    return rc::gen::exec([=] {
        const auto number = [](int from, int to) { return *rc::gen::inRange(from, to + 1); };
        Setting s;
        naive::Window& w = s.setup.window;
        w.kind = kind;
        if (kind != naive::WindowKind::full) {
            w.size = size != 0 ? size : number(1, 6);
            w.retention = number(0, 1) * (w.size + number(0, 3));
            w.sinks = number(0, 1) * number(0, 3);
        }
        s.setup.sequences = number(1, 5);
        s.setup.capacity = kind == naive::WindowKind::full ? number(1, 8) : number(3, 14);
        s.setup.batch = number(1, 6);
        constexpr int paddings[] = {1, 2, 3, 4, 6, 8};
        s.setup.padding = paddings[number(0, 5)];
        constexpr int start_paddings[] = {1, 1, 0, 12, 64};
        s.start_padding = start_paddings[number(0, 4)];
        s.setup.can_shift = can_shift;
        s.setup.consecutive = number(0, 1) == 1;
        constexpr cellar::Placement placements[] = {cellar::Placement::blocks, cellar::Placement::scattered,
                                                    cellar::Placement::contiguous};
        s.placement = placements[number(0, 2)];
        if (s.placement == cellar::Placement::blocks && number(0, 1) == 1) s.setup.capacity += 30; // several blocks
        s.initial_cells = number(0, 1) * number(1, 12);
        constexpr int every[] = {1, 1, 4, 20};
        s.inspect_every = every[number(0, 3)];
        return s;
    });
}

/// The same generator with another seed, so that combinations of policies draw different series from one seed.
template <class T>
rc::Gen<T> salted(std::uint64_t salt, rc::Gen<T> gen) {
    return [=](const rc::Random& random, int size) { return gen(rc::Random{rc::Random{random}.next() ^ salt}, size); };
}

/// Up to `length` steps.
inline rc::Gen<std::vector<Step>> steps(int length, int sequences, int max_tokens) {
    return rc::gen::resize(
        length, rc::gen::container<std::vector<Step>>(rc::gen::resize(rc::kNominalSize, step(sequences, max_tokens))));
}

} // namespace property
