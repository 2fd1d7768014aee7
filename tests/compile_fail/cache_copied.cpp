// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy of a cache would either take the memory twice or be an alias.
// error: deleted
#include <cellar/cellar.hpp>

int main() {
    cellar::Cache<> cache{cellar::CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 4, .value_dim = 4},
                          {.sequences = 1, .capacity = 8, .batch = 4}};
#ifdef CORRECTED
    cellar::Cache<> other = static_cast<cellar::Cache<>&&>(cache);
#else
    cellar::Cache<> other = cache;
#endif
    return other.cells();
}
