// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "draft.hpp"

#include <algorithm>
#include <cstddef>

namespace llama {

namespace {

constexpr std::size_t shortest = 3;
constexpr std::size_t longest = 12;
constexpr std::size_t searched = 4096;

/// How many tokens before `a` and before `b` are equal, up to `longest`. `a` is less than `b`.
std::size_t common_suffix(std::span<const int> text, std::size_t a, std::size_t b) {
    std::size_t n = 0;
    while (n < std::min(a, longest) && text[a - n - 1] == text[b - n - 1]) ++n;
    return n;
}

} // namespace

std::vector<int> draft(std::span<const int> text, int count) {
    if (text.size() > searched) text = text.last(searched);
    std::size_t best = shortest - 1;
    std::size_t found = text.size();
    for (std::size_t end = text.size(); end-- > shortest && best < longest;) {
        const std::size_t n = common_suffix(text, end, text.size());
        if (n <= best) continue;
        best = n;
        found = end;
    }
    const std::size_t size = std::min(text.size() - found, static_cast<std::size_t>(std::max(count, 0)));
    return {text.begin() + static_cast<std::ptrdiff_t>(found),
            text.begin() + static_cast<std::ptrdiff_t>(found + size)};
}

} // namespace llama
