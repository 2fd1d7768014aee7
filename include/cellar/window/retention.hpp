// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar {

/// What a window keeps beyond what a token sees.
struct WindowOptions {
    /// Newest tokens kept per sequence, for reuse and rollback: n more than the width allow going back n + 1 tokens.
    /// 0: the width, and one more if there are several sequences.
    std::int32_t retention = 0;
    /// First positions that are always kept and seen (attention sinks, arXiv:2309.17453).
    std::int32_t pinned = 0;
};

namespace detail {

/// How many of the newest tokens of a sequence are kept: what the windows that forget have in common.
class Retention {
public:
    /// `tokens`: 0 for the default, which `fitted` settles.
    constexpr explicit Retention(std::int32_t tokens) : tokens_{tokens} {}

    /// The default is the width, and one more where several sequences take turns, so that a dropped stop token does
    /// not break resuming. All is kept once that, and the pinned positions, would fill the capacity anyway.
    constexpr Retention fitted(std::int32_t width, std::int32_t pinned, std::int32_t sequences,
                               std::int32_t capacity) const {
        const std::int32_t one_more = sequences > 1 && width < everything ? 1 : 0;
        const std::int32_t asked = tokens_ != 0 ? tokens_ : width + one_more;
        CELLAR_EXPECTS(asked >= width, "window: the retention is ", asked, " tokens, expected at least the width ",
                       width);
        return Retention{std::int64_t{pinned} + asked >= capacity ? everything : asked};
    }

    constexpr Position oldest_kept(Position newest, std::int32_t width) const {
        const std::int32_t kept = tokens_ != 0 ? tokens_ : width;
        return {newest.value < kept ? 0 : newest.value - kept + 1};
    }

    constexpr std::int64_t cells(std::int32_t pinned, std::int32_t sequences, std::int32_t capacity,
                                 std::int32_t batch) const {
        if (tokens_ == everything) return std::int64_t{sequences} * capacity;
        return std::int64_t{sequences} * (pinned + tokens_) + batch;
    }

private:
    static constexpr std::int32_t everything = INT32_MAX;

    std::int32_t tokens_;
};

} // namespace detail

} // namespace cellar
