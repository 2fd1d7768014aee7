// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cellar::detail {

/// How many of the first tokens are equal in both lists. Compares blocks by memcmp, then the tokens of the first block
/// that differs.
inline std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    const std::size_t n = std::min(a.size(), b.size());
    std::size_t equal = 0;
    for (const std::size_t block : {std::size_t{4096}, std::size_t{128}})
        while (n - equal >= block && std::memcmp(a.data() + equal, b.data() + equal, block * sizeof(std::int32_t)) == 0)
            equal += block;
    while (equal < n && a[equal] == b[equal]) ++equal;
    return equal;
}

} // namespace cellar::detail
