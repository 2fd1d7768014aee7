// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <span>
#include <string>
#include <vector>

namespace chat {

/// What the user said, and the reply.
struct Turn {
    int begin = 0;      ///< of the part that the model saw, when the turn began
    int first = 0;      ///< tokens of the conversation before the turn
    int prompt_end = 0; ///< tokens before the reply
    int attempt = 0;    ///< how many replies were taken back
};

struct Conversation {
    std::string name = {};
    int text = 0; ///< its number in the pool
    std::vector<int> tokens = {};
    std::vector<Turn> turns = {};
    int begin = 0; ///< of the part that the model sees: what is older no longer fits into the context

    std::span<const int> visible() const { return std::span{tokens}.subspan(static_cast<std::size_t>(begin)); }

    /// Everything but the last token, whose output is needed next, belongs into the memory.
    std::span<const int> remembered() const {
        const auto seen = visible();
        return seen.first(seen.empty() ? 0 : seen.size() - 1);
    }

    /// What the last turn has of the reply.
    std::span<const int> reply() const {
        return std::span{tokens}.subspan(static_cast<std::size_t>(turns.back().prompt_end));
    }

    /// Takes tokens back. The memory has to follow.
    void cut(int length, int new_begin) {
        tokens.resize(static_cast<std::size_t>(length));
        begin = new_begin;
    }
};

} // namespace chat
