// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "folding.hpp"

#include <cstdint>

namespace recurrent_test {

/// States of two sequences, and so many snapshots.
inline Folding<> memory(std::int32_t snapshots) {
    return {shape(), {.sequences = 2, .batch = 8, .rollback = 1, .snapshots = snapshots}};
}

/// Commits a pass of `count` tokens.
inline void feed(Folding<>& memory, int sequence, int first, int count) {
    const auto tokens = text(sequence, first, count);
    auto pass = memory.begin(batch_of(tokens)).value();
    fold(pass, tokens, false);
    pass.commit();
}

inline auto state_of(const Folding<>& memory, int sequence) {
    return numbers(memory, memory.state(cellar::Sequence{sequence}));
}

} // namespace recurrent_test
