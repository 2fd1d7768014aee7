// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdlib>

/// How many random cases a test computes: `few`, or `many` where CELLAR_PROPERTY_SECONDS is in the environment, whatever
/// it is, as in the leg `host`.
inline unsigned random_cases(unsigned few, unsigned many) {
    return std::getenv("CELLAR_PROPERTY_SECONDS") == nullptr ? few : many;
}
