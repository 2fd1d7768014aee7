// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>
#include <cellar/base/offload_to.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

/// What the usefulness of a node of a prefix tree is computed from.
struct PrefixUse {
    std::uint64_t last_used; ///< counts the uses of all nodes: the larger, the later
    std::int32_t tokens;     ///< that would have to be computed again without it, up to its end
    std::int64_t bytes;      ///< that its snapshot takes
    double floor;            ///< the usefulness of the node that was evicted most recently before this use
};

/// How useful a node is: the node with the smallest result is evicted first. Called when a node is used, divided,
/// offloaded or reloaded, when a shorter prefix of it is kept, and again before the node is evicted. What is offloaded
/// is weighed by the bytes that it takes there. The result must depend on nothing but the argument. NaN is less than
/// any number.
using Usefulness = double (*)(const PrefixUse&) noexcept;

/// The least recently used node is evicted first.
inline double least_recently_used(const PrefixUse& use) noexcept {
    return static_cast<double>(use.last_used);
}

/// The node that saves the fewest tokens for each byte is evicted first. With each node that is evicted, the others
/// age (GreedyDual-Size; Cao and Irani 1997).
inline double tokens_for_each_byte(const PrefixUse& use) noexcept {
    return use.floor + static_cast<double>(use.tokens) / static_cast<double>(std::max<std::int64_t>(use.bytes, 1));
}

/// What a `PrefixTree` keeps, and where.
struct PrefixLimits {
    NamedOnly named_only{};
    Usefulness usefulness = least_recently_used;
    /// Memory for prefixes that are offloaded. When the cells or slots are full, prefixes are offloaded as long as
    /// these bytes suffice, and then evicted.
    std::int64_t offloaded_bytes = 0;
    OffloadTo offload_to = OffloadTo::host; ///< where prefixes are offloaded to
    /// The page size of kernels that read pages (`CachePass::pages`), a divisor of 64: `attach` shares whole pages, and
    /// copies less than a page where a prefix ends or was divided, as `Cache::form_pages` does. 1: it copies nothing.
    std::int32_t page = 1;
};

} // namespace cellar
