// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar::detail {

/// How many of a sequence's newest tokens a window keeps: shared by the windows that forget.
class Retention {
public:
    /// `asked`: what the user asked for; 0 is the default, which `resolved` fills in.
    constexpr explicit Retention(std::int32_t asked) : Retention{asked, asked} {}

    /// The default is the width, and one more where several sequences take turns: then a sequence can drop its last
    /// token (a stop token) and still resume. Everything is kept if the window is larger than the capacity, or if a
    /// longer retention than the window was asked for that, with the sinks, reaches the capacity.
    constexpr Retention resolved(std::int32_t width, std::int32_t sinks, std::int32_t sequences,
                                 std::int32_t capacity) const {
        const std::int32_t one_more = sequences > 1 && width < everything ? 1 : 0;
        const std::int32_t wanted = asked_ != 0 ? asked_ : width + one_more;
        CELLAR_EXPECTS(wanted >= width, "window: the retention is ", wanted, " tokens, expected at least the width ",
                       width);
        const bool is_larger = std::int64_t{sinks} + width > capacity;
        const bool is_asked = asked_ > width && std::int64_t{sinks} + asked_ >= capacity;
        return {asked_, is_larger || is_asked ? everything : wanted};
    }

    constexpr Position oldest_kept(Position newest, std::int32_t width) const {
        const std::int32_t kept = kept_ != 0 ? kept_ : width;
        return Position{newest.value < kept ? 0 : newest.value - kept + 1};
    }

    constexpr std::int64_t cells(std::int32_t sinks, std::int32_t sequences, std::int32_t capacity,
                                 std::int32_t batch) const {
        if (kept_ == everything) return std::int64_t{sequences} * capacity;
        return std::int64_t{sequences} * (std::int64_t{sinks} + kept_) + batch;
    }

private:
    static constexpr std::int32_t everything = INT32_MAX;

    constexpr Retention(std::int32_t asked, std::int32_t kept) : asked_{asked}, kept_{kept} {}

    std::int32_t asked_;
    std::int32_t kept_;
};

} // namespace cellar::detail
