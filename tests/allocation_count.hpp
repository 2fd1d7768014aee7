// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

// Counts the allocations of this program, including those of `operator new`, while `counting` is true. For tests that
// link allocation_count.cpp.
extern bool counting;
extern std::int64_t allocations;
extern std::int64_t allocated_bytes; ///< of these, whether freed since or not
extern const bool installed;         ///< if false, nothing is counted
