// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch_builder.hpp>

#include <vector>

namespace cellar_test {

/// A token of a model whose tokens are plain numbers.
struct Token {
    int sequence;
    int position;
    int word;
};
using Text = std::vector<Token>;

/// `count` tokens of one sequence from `position` on.
inline Text text(int sequence, int position, int count, int first_word = 1) {
    Text tokens;
    for (int i = 0; i < count; ++i) tokens.push_back({sequence, position + i, first_word + i});
    return tokens;
}

inline Text operator+(Text a, const Text& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline cellar::BatchBuilder batch_of(const Text& text) {
    cellar::BatchBuilder tokens;
    for (const Token& t : text) tokens.add(cellar::Sequence{t.sequence}, cellar::Position{t.position});
    return tokens;
}

} // namespace cellar_test
