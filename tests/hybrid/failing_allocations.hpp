// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <new>
#include <utility>

/// The memory of a test program runs out when it is told to: see failing_allocations.cpp.
class FailingAllocations {
public:
    /// While it lives, the first `successes` allocations succeed and all later ones throw `std::bad_alloc`.
    explicit FailingAllocations(std::int64_t successes) { left() = successes; }
    ~FailingAllocations() { left() = unlimited; }
    FailingAllocations(const FailingAllocations&) = delete;
    FailingAllocations& operator=(const FailingAllocations&) = delete;

    static std::int64_t& left() {
        static std::int64_t count = unlimited;
        return count;
    }
    static constexpr std::int64_t unlimited = INT64_MAX;
};

/// Calls `verb` with ever later allocations failing, and `check` after each failure, until it succeeds. How often it
/// failed.
template <class Verb, class Check>
int failures_of(Verb verb, Check check) {
    for (int successes = 0;; ++successes) {
        try {
            const FailingAllocations failing{successes};
            verb();
            return successes;
        } catch (const std::bad_alloc&) {}
        check();
    }
}
