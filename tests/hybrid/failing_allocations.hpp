// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <new>
#include <utility>

/// Makes allocations of a test program fail: see failing_allocations.cpp.
class FailingAllocations {
public:
    /// While it exists, the first `successes` allocations succeed and all later ones throw `std::bad_alloc`.
    explicit FailingAllocations(std::int64_t successes) { left() = successes; }
    ~FailingAllocations() { left() = unlimited; }
    FailingAllocations(const FailingAllocations&) = delete;
    FailingAllocations& operator=(const FailingAllocations&) = delete;

    static std::int64_t& left() {
        static std::int64_t count = unlimited;
        return count;
    }
    static constexpr std::int64_t unlimited = INT64_MAX;

    /// Bytes of all allocations so far, whether freed since or not.
    static std::int64_t& bytes() {
        static std::int64_t sum = 0;
        return sum;
    }
};

/// Repeats `operation` with the first allocation failing, then the second, and so on, until it succeeds. Calls `check`
/// after each failure. Returns the number of failures.
template <class Operation, class Check>
int failures_of(Operation operation, Check check) {
    for (int successes = 0;; ++successes) {
        try {
            const FailingAllocations failing{successes};
            operation();
            return successes;
        } catch (const std::bad_alloc&) {}
        check();
    }
}
