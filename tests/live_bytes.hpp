// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

// What this program asked allocators for since `watch_allocations` and did not free, without what `ZeroedArray` adds for
// its alignment. For tests of one thread that link live_bytes.cpp.
extern const bool can_watch; ///< if false, nothing is counted
void watch_allocations();
std::int64_t live_bytes();
