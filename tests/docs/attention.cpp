// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The only translation unit that instantiates the cache.
// [source]
#include "attention.hpp"

#include <cellar/cellar.hpp>

struct Attention::Parts {
    cellar::Cache<cellar::StandardV<float>> cache;
};

Attention::Attention(int layers, int kv_heads, int head_dim)
    : parts_{new Parts{{{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim},
                        {.sequences = 4, .capacity = 4096, .batch = 512}}}} {}

Attention::~Attention() = default; // here, where Parts is complete

float Attention::step(const std::vector<float>& rows) {
    auto& cache = parts_->cache;
    auto pass = cache.begin(cellar::Sequence{0}, 1);
    if (!pass) return 0;
    float sum = 0;
    for (int layer = 0; layer < cache.layers(); ++layer) {
        pass->put(layer, rows, rows);
        const auto keys = pass->keys(layer);
        for (const cellar::CellRange run : pass->visible(0))
            for (int i = 0; i < run.count; ++i) sum += keys(run.first - pass->history().first + i, 0, 0);
    }
    pass->commit();
    return sum;
}
// [/source]
