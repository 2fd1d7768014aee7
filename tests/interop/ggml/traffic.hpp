// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "random_model.hpp"
#include <cellar/base/batch_builder.hpp>

namespace ggml_test {

/// `count` tokens of a sequence from `position` on.
inline Text text(int sequence, int position, int count) {
    Text batch;
    for (int i = 0; i < count; ++i)
        batch.push_back({sequence, position + i, (7 * (position + i) + 13 * sequence + 5) % vocabulary});
    return batch;
}
inline Text operator+(Text a, const Text& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline cellar::BatchBuilder tokens_of(const Text& batch) {
    cellar::BatchBuilder tokens;
    for (const Token& token : batch) tokens.add(cellar::Sequence{token.sequence}, cellar::Position{token.position});
    return tokens;
}

/// A prompt, decode steps, a shared prefix, several sequences in a batch. Calls copy(from, to, length), and
/// decode(batch) for each pass.
template <class Copy, class Decode>
void traffic(Copy copy, Decode decode) {
    decode(text(0, 0, 40));
    for (int i = 0; i < 3; ++i) decode(text(0, 40 + i, 1));
    copy(0, 1, 30);
    decode(text(0, 43, 1) + text(1, 30, 5) + text(2, 0, 7));
    for (int i = 0; i < 3; ++i) decode(text(0, 44 + i, 1) + text(1, 35 + i, 1) + text(2, 7 + i, 1));
}

} // namespace ggml_test
