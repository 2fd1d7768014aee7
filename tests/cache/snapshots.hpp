// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "numbers.hpp"

namespace numbers {

/// A cache whose sequence 0 has tokens 1 to 6.
inline Cache<> filled() {
    Cache<> cache{small, {.sequences = 3, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    return cache;
}

} // namespace numbers
