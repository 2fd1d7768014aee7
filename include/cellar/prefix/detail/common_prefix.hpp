// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// True if a token differs. Compilers use vector instructions for it, at once for the whole block.
inline bool differs(const std::int32_t* a, const std::int32_t* b) {
    std::int32_t difference = 0;
    for (int i = 0; i < 16; ++i) difference |= a[i] ^ b[i];
    return difference != 0;
}

/// How many of the first tokens are equal in both lists. Compares large blocks by memcmp, then smaller ones, then the
/// tokens of the first block that differs.
inline std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    const std::size_t n = std::min(a.size(), b.size());
    std::size_t equal = 0;
    for (const std::size_t block : {std::size_t{4096}, std::size_t{128}})
        while (n - equal >= block && std::memcmp(a.data() + equal, b.data() + equal, block * sizeof(std::int32_t)) == 0)
            equal += block;
    while (n - equal >= 16 && !differs(a.data() + equal, b.data() + equal)) equal += 16;
    // The rest of a long list is compared together with some tokens before it.
    if (n - equal < 16 && n >= 16 && !differs(a.data() + n - 16, b.data() + n - 16)) return n;
    while (equal < n && a[equal] == b[equal]) ++equal;
    return equal;
}

} // namespace cellar::detail
