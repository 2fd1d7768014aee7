// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace cellar {

/// How much of a list of tokens a prefix tree has.
struct PrefixMatch {
    std::int32_t length = 0;   ///< tokens that the memory can restore, or has restored
    std::int32_t verified = 0; ///< tokens that the tree has; not less than `length`

    constexpr bool operator==(const PrefixMatch&) const = default;
};

/// The counters of a prefix tree count since it was made.
struct PrefixStatistics {
    std::int64_t hits = 0;         ///< calls of `attach` that attached all tokens
    std::int64_t partial_hits = 0; ///< those that attached some
    std::int64_t misses = 0;       ///< those that attached none
    std::int64_t evictions = 0;    ///< snapshots that were evicted
    std::int64_t offloads = 0;     ///< snapshots that were offloaded
    std::int64_t reloads = 0;      ///< those that came back
    std::int64_t tokens_asked = 0; ///< in all calls of `attach`
    std::int64_t tokens_attached = 0;

    std::int64_t nodes = 0;           ///< now, without the roots
    std::int64_t snapshots = 0;       ///< now, in place or offloaded
    std::int64_t in_place_bytes = 0;  ///< of snapshots in place, now; cells that two of them share count twice
    std::int64_t offloaded = 0;       ///< snapshots, now
    std::int64_t offloaded_bytes = 0; ///< of those, now
    std::int64_t tokens = 0;          ///< in the edges, now; each takes four bytes
};

} // namespace cellar
