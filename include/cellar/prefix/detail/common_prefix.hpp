// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// How many of the first tokens are equal in both lists. Most edges of a tree are shorter than a large block, and
/// equal: these take one comparison.
inline std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    const std::size_t n = std::min(a.size(), b.size());
    std::size_t equal = 0;
    const auto go_on = [&](std::size_t count) {
        if (std::memcmp(a.data() + equal, b.data() + equal, count * sizeof(std::int32_t)) != 0) return false;
        equal += count;
        return true;
    };
    while (n - equal >= 4096 && go_on(4096)) {}
    if (equal == n || go_on(n - equal)) return n;
    for (const std::size_t block : {std::size_t{128}, std::size_t{16}})
        while (n - equal >= block && go_on(block)) {}
    while (a[equal] == b[equal]) ++equal; // they differ before n
    return equal;
}

} // namespace cellar::detail
