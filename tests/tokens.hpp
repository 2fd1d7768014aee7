// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>

#include <vector>

namespace cellar_test {

/// A token of a model in which all that a token is, is a number.
struct Token {
    int sequence;
    int position;
    int word;
};
using Tokens = std::vector<Token>;

/// `count` tokens of one sequence from `position` on.
inline Tokens text(int sequence, int position, int count, int first_word = 1) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) tokens.push_back({sequence, position + i, first_word + i});
    return tokens;
}

inline Tokens operator+(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// A `cellar::Batch` with memory of its own.
struct Batch {
    explicit Batch(const Tokens& tokens) {
        for (const Token& t : tokens) {
            positions.push_back({t.position});
            sequences.push_back({t.sequence});
        }
    }
    operator cellar::Batch() const { return {positions, sequences}; }

    std::vector<cellar::Position> positions;
    std::vector<cellar::Sequence> sequences;
};

} // namespace cellar_test
