// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Keys are [tokens, kv_heads, key_dim]. A view of another rank is a mistake.
// error: rows
#include <cellar/cellar.hpp>

void put(cellar::Cache<>& cache, const float* data) {
    auto pass = cache.reserve(1);
#ifdef CORRECTED
    const auto k = cellar::contiguous_view(data, 1, 1, 4);
#else
    const auto k = cellar::contiguous_view(data, 1, 4);
#endif
    pass.put(0, k, k);
}
