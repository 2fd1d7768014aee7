// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <doctest/doctest.h>

/// Ends a test case that cannot run here, and prints the reason. ctest counts it as skipped, not as passed.
#define CELLAR_SKIP(...)                                                                                               \
    do {                                                                                                               \
        MESSAGE("[skipped] ", __VA_ARGS__);                                                                            \
        return;                                                                                                        \
    } while (false)
