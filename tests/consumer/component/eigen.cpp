// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

int main() {
    using Cache =
        cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::DisabledShift, cellar::EigenBackend>;
    const Cache cache{cellar::CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 2},
                      {.sequences = 1, .capacity = 8, .batch = 4}};
    return cache.cells() == 8 ? 0 : 1;
}
