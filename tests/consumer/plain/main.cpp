// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cellar.hpp>

#include <array>

static_assert(CELLAR_VERSION >= 100);

int main() {
    cellar::Cache<cellar::PermutedV<cellar::half>, cellar::SlidingWindow<4>> cache{
        cellar::CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 2},
        {.sequences = 1, .capacity = 8, .batch = 4}};

    const std::array<cellar::Position, 2> positions{{cellar::Position{0}, cellar::Position{1}}};
    const std::array<cellar::Sequence, 2> sequences{{cellar::Sequence{0}, cellar::Sequence{0}}};
    const std::array<float, 4> rows{1, 2, 3, 4};

    auto pass = cache.begin({positions, sequences});
    if (!pass) return 1;
    pass->put(0, rows, rows);
    auto [keys, values, mask] = pass->get(0);
    const bool is_correct = static_cast<float>(keys(1, 0, 1)) == 4.0F && mask(0, 1) < 0;
    pass->commit();
    return is_correct && cache.can_resume(cellar::Sequence{0}, cellar::Position{2}) ? 0 : 1;
}
