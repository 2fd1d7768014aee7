// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "pool/text_pool.hpp"
#include <cellar/prefix/prefix_statistics.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace serve {

/// The smallest value that at least this share of all values does not exceed; 0 if there are none.
template <class T>
T percentile(std::vector<T> values, int percent) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t rank = (values.size() * static_cast<std::size_t>(percent) + 99) / 100;
    return values[std::max<std::size_t>(rank, 1) - 1];
}

/// From the arrival of each request on.
struct Latency {
    std::vector<int> steps = {};
    std::vector<double> seconds = {};
};

/// How the pool was used after a step.
struct Sample {
    int step = 0;
    llama::PoolUse use = {};
};

/// What came of a run.
struct Outcome {
    int steps = 0; ///< the number of the last one; idle ones count
    double seconds = 0;
    std::int64_t passes = 0;
    std::int64_t computed = 0; ///< tokens
    std::int64_t replies = 0;
    std::int64_t refusals = 0;    ///< passes that the pool had no room for
    std::int64_t preemptions = 0; ///< requests that were put back
    std::int64_t shifts = 0;      ///< times that a conversation had outgrown the context
    cellar::PrefixStatistics tree = {};
    Latency first = {}; ///< to the first byte of a reply
    Latency whole = {}; ///< to its last one
    std::vector<Sample> samples = {};
    std::vector<std::string> texts = {}; ///< of each user
    std::string audit = {};              ///< what is wrong with the memory at the end; empty if nothing is

    /// The share of the tokens in requests that the tree had.
    double hit_rate() const {
        return tree.tokens_asked == 0
                   ? 0
                   : static_cast<double>(tree.tokens_attached) / static_cast<double>(tree.tokens_asked);
    }
};

} // namespace serve
