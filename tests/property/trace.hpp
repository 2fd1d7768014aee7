// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace property {

/// The operations on a cache so far, as lines that can be pasted into a test with few changes.
class Trace {
public:
    template <class... Parts>
    void add(const Parts&... parts) {
        (done_ << ... << parts);
    }

    /// Throws with the whole trace and the reason unless `holds`.
    template <class... Parts>
    void expect(bool holds, const Parts&... reason) const {
        if (!holds) fail(reason...);
    }

    template <class... Parts>
    [[noreturn]] void fail(const Parts&... reason) const {
        std::ostringstream message;
        message << "after\n" << done_.str();
        (message << ... << reason);
        throw std::runtime_error{message.str()};
    }

private:
    std::ostringstream done_;
};

} // namespace property
