// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar::detail {

/// What the windows have in common that forget: how many of a sequence's newest tokens they keep, and the sinks.
class ForgettingWindow {
public:
    constexpr Position oldest_kept(Position newest) const {
        const std::int32_t kept = kept_ != 0 ? kept_ : width_;
        return Position{newest.value < kept ? 0 : newest.value - kept + 1};
    }
    constexpr std::int32_t sinks() const { return sinks_; }
    constexpr std::int64_t cells(std::int32_t sequences, std::int32_t capacity, std::int32_t batch) const {
        if (kept_ == everything) return std::int64_t{sequences} * capacity;
        return std::int64_t{sequences} * (std::int64_t{sinks_} + kept_) + batch;
    }

protected:
    /// `window`, `what`: the names of the window and of its width, for messages. A retention of 0 is the default, which
    /// `resolve` fills in.
    constexpr ForgettingWindow(const char* window, const char* what, std::int32_t width, const WindowOptions& options,
                               Where where)
        : width_{width}, sinks_{options.sinks}, asked_{options.retention}, kept_{options.retention} {
        CELLAR_EXPECTS_AT(where, width > 0, window, ": the ", what, " is ", width, ", expected at least 1");
        CELLAR_EXPECTS_AT(where, sinks_ >= 0, window, ": ", sinks_, " sinks, expected 0 or more");
    }

    constexpr std::int32_t width() const { return width_; }

    /// The default is the width, and one more where several sequences take turns: then a sequence can drop its last
    /// token (a stop token) and still resume. Everything is kept if the window is larger than the capacity. So
    /// it is if a retention longer than the window was asked for and reaches the capacity, with the sinks.
    constexpr void resolve(std::int32_t sequences, std::int32_t capacity) {
        const std::int32_t one_more = sequences > 1 && width_ < everything ? 1 : 0;
        const std::int32_t wanted = asked_ != 0 ? asked_ : width_ + one_more;
        CELLAR_EXPECTS(wanted >= width_, "window: the retention is ", wanted, " tokens, expected at least the width ",
                       width_);
        const bool is_larger = std::int64_t{sinks_} + width_ > capacity;
        const bool is_asked = asked_ > width_ && std::int64_t{sinks_} + asked_ >= capacity;
        kept_ = is_larger || is_asked ? everything : wanted;
    }

private:
    static constexpr std::int32_t everything = INT32_MAX;

    std::int32_t width_;
    std::int32_t sinks_;
    std::int32_t asked_; // for the retention; 0: the default
    std::int32_t kept_;
};

} // namespace cellar::detail
