// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "manner.hpp"

#include <algorithm>
#include <cstddef>

namespace chat {

namespace {

void append(std::vector<int>& tokens, const std::string& bytes) {
    for (const char c : bytes) tokens.push_back(static_cast<unsigned char>(c));
}

} // namespace

void Play::say(std::vector<int>& tokens, const std::string& line) const {
    if (!tokens.empty()) { // an interrupted reply may end anywhere
        const std::size_t last = tokens.size() - 1;
        const bool ends_line = tokens[last] == '\n';
        const bool ends_speech = ends_line && last > 0 && tokens[last - 1] == '\n';
        append(tokens, ends_speech ? "" : ends_line ? "\n" : "\n\n");
    }
    append(tokens, user_ + ":\n" + line + "\n\n" + speaker_ + ":\n");
}

bool Play::ends(std::span<const int> reply) const {
    if (stop_.empty() || reply.size() < stop_.size()) return false;
    return std::equal(stop_.rbegin(), stop_.rend(), reply.rbegin(),
                      [](char wanted, int token) { return static_cast<unsigned char>(wanted) == token; });
}

} // namespace chat
