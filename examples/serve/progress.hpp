// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "server.hpp"

#include <chrono>
#include <ostream>
#include <string>

namespace serve {

/// Prints where a run is: on a terminal a line that is overwritten, else a line now and then.
class Progress {
public:
    Progress(std::ostream& stream, bool terminal, std::string name)
        : stream_{stream}, terminal_{terminal}, name_{std::move(name)} {}

    void operator()(const State& state) {
        const bool is_end = state.finished == state.users;
        const auto now = std::chrono::steady_clock::now();
        if (!is_end && now < next_) return;
        next_ = now + std::chrono::milliseconds{terminal_ ? 100 : 2000};
        stream_ << (terminal_ ? "\r\033[K" : "") << name_ << ": step " << state.step << ", " << state.running
                << " running, " << state.waiting << " waiting, " << state.finished << " of " << state.users
                << " users finished" << (terminal_ && !is_end ? "" : "\n") << std::flush;
    }

private:
    std::ostream& stream_;
    bool terminal_;
    std::string name_;
    std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

} // namespace serve
