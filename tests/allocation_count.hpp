// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

// Counts the allocations of this program, those of `operator new` included, while `counting`. A test that links
// allocation_count.cpp can use it.
extern bool counting;
extern std::int64_t allocations;
extern const bool installed; ///< otherwise nothing is counted
