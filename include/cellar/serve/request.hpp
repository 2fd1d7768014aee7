// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace cellar::serve {

/// A request of a scheduler. Those that were submitted earlier are less.
struct RequestId {
    std::int64_t value = -1;

    constexpr auto operator<=>(const RequestId&) const = default;
};

/// Tokens that are to be answered.
struct Request {
    std::vector<std::int32_t> tokens = {}; ///< the prompt: at least one
    std::int32_t answer = INT32_MAX;       ///< its most tokens; 0: the prompt is computed, and nothing else
    /// Lengths of prefixes of the prompt from which other requests may go on, as that of a system prompt. A step ends
    /// there, and the memory keeps what was computed. What was computed when a request ends, or is put back, is kept in
    /// any case.
    std::vector<std::int32_t> keep = {};
    std::uint64_t salt = 0; ///< as of `PrefixTree::attach`
};

/// What a request computes in a step: its next tokens.
struct Part {
    RequestId request;
    Sequence sequence;
    std::int32_t row;                     ///< of the first token, in the batch
    std::span<const std::int32_t> tokens; ///< valid until the request gets another token, forgets some, or ends
    /// The last token of the request is the last of these: the model's output for it gives the next one, to `append`.
    bool at_end;
};

} // namespace cellar::serve
