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
    Cache cache{{1, 1, 2}, {.sequences = 2, .capacity = 8, .batch = 4}};
    const std::vector<float> rows{1, 2, 3, 4};
    auto pass = cache.begin(cellar::Tokens{{0}, {0}, 2});
    if (!pass) return 1;
    pass->put(0, rows, rows);
    pass->commit();
    if (!cache.copy_prefix({0}, {1}, 2) || !cache.remove({0}, {1}, cellar::to_end)) return 1;
    if (cache.tokens({0}) != 1 || cache.tokens({1}) != 2) {
        std::puts("the cache that another file instantiates has other tokens");
        return 1;
    }
}
