// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a translation unit that makes and uses one cache costs to compile. OWN_HEADERS: without the umbrella header.
// INSTANTIATED_ELSEWHERE: another one instantiates the cache.
#ifdef OWN_HEADERS
#include <cellar/base/batch_builder.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/layout/layout.hpp>
#else
#include <cellar/cellar.hpp>
#endif

#include <vector>

using Cache = cellar::Cache<cellar::StandardV<float>>;
#ifdef INSTANTIATED_ELSEWHERE
extern template class cellar::Cache<cellar::StandardV<float>>;
extern template class cellar::CachePass<Cache>;
#endif

Cache make_cache() {
    return {{.layers = 32, .kv_heads = 8, .head_dim = 128}, {.sequences = 4, .capacity = 4096, .batch = 512}};
}

float step(Cache& cache, const std::vector<float>& rows) {
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cache.next(cellar::Sequence{0}), 1});
    if (!pass) return 0;
    float sum = 0;
    for (int layer = 0; layer < cache.layers(); ++layer) {
        pass->put(layer, rows, rows);
        const auto keys = pass->keys(layer);
        for (const cellar::CellRange run : pass->visible(0))
            for (int i = 0; i < run.count; ++i) sum += keys(run.first - pass->history().first + i, 0, 0);
    }
    pass->commit();
    return cache.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::Position{1}) ? sum : 0;
}
