// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Unnamed limits could be swapped: 2048 sequences of 8 tokens, or 8 sequences of 2048?
// error: NamedOnly
#include <cellar/cellar.hpp>

#ifdef CORRECTED
const cellar::CacheLimits limits{.sequences = 8, .capacity = 2048};
#else
const cellar::CacheLimits limits{2048, 8};
#endif
