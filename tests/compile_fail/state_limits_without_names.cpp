// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: NamedOnly
#include <cellar/cellar.hpp>

#ifdef CORRECTED
const cellar::StateLimits limits{.sequences = 8, .batch = 32};
#else
const cellar::StateLimits limits{8, 32};
#endif
