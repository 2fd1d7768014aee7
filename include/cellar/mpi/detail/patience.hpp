// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace cellar::detail {

/// A violation unless it is a time limit, or 0: without one.
inline std::chrono::milliseconds expect_limit(const char* what, std::chrono::milliseconds limit, Where where) {
    CELLAR_EXPECTS_AT(where, limit.count() >= 0, what, ": a time limit of ", limit.count(), " ms, expected 0 or more");
    return limit;
}

/// Counts the time in which another process does nothing. The time between two calls of `is_over` counts as an eighth
/// of the limit at most.
class Patience {
public:
    using Clock = std::chrono::steady_clock;

    /// 0: without limit. One of more than a century is one of a century: the clock cannot count much further.
    explicit Patience(std::chrono::milliseconds limit)
        : limit_{std::min<std::chrono::milliseconds>(limit, std::chrono::hours{24 * 36525})} {}

    void something_happened() {
        idle_ = {};
        looks_ = 0;
        last_ = Clock::now();
    }
    /// Call it each time that nothing has happened.
    bool is_over() {
        const Clock::time_point now = Clock::now();
        idle_ += std::min(now - last_, limit_ / 8);
        last_ = now;
        ++looks_;
        return idle_ >= limit_ && limit_ > Clock::duration{0};
    }
    /// Gives the processor to others if nothing has happened for a while: that can cost milliseconds.
    void yield() const {
        if (looks_ > 1000) std::this_thread::yield();
    }
    /// For short waits: gives the processor to others now and then.
    void yield_at_times() const {
        if (looks_ % 64 == 0) std::this_thread::yield();
    }

private:
    Clock::duration limit_;
    Clock::duration idle_{};
    std::int64_t looks_ = 0; // since something happened
    Clock::time_point last_ = Clock::now();
};

} // namespace cellar::detail
