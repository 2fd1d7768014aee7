// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Unnamed extents could be swapped: 128 layers of 32 elements, or 32 layers of 128?
// error: NamedOnly
#include <cellar/cellar.hpp>

#ifdef CORRECTED
const cellar::CacheShape shape{.layers = 32, .kv_heads = 8, .head_dim = 128};
#else
const cellar::CacheShape shape{128, 8, 32};
#endif
