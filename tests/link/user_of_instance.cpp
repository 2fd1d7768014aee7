// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "instantiated_elsewhere.hpp"

#include <cstdio>
#include <vector>

// [extern]
extern template class cellar::Cache<cellar::StandardV<float>>;
extern template class cellar::CachePass<Cache>;
// [/extern]

// What this file calls is compiled in the other one.
int main() {
    Cache cache{{.layers = 1, .kv_heads = 1, .head_dim = 2}, {.sequences = 2, .capacity = 8, .batch = 4}};
    const std::vector<float> rows{1, 2, 3, 4};
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 2});
    if (!pass) return 1;
    pass->put(0, rows, rows);
    pass->commit();
    if (!cache.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{2})
        || !cache.remove(cellar::Sequence{0}, cellar::Position{1}, cellar::to_end))
        return 1;
    if (cache.tokens(cellar::Sequence{0}) != 1 || cache.tokens(cellar::Sequence{1}) != 2) {
        std::puts("the cache that another file instantiates has other tokens");
        return 1;
    }
}
