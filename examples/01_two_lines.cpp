// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The smallest program: one cache, one sequence, a prompt and the next token.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <cmath>
#include <vector>

int main() {
    constexpr int layers = 1;
    constexpr int heads = 2;
    constexpr int dim = 3;

    // [cache]
    using Memory = cellar::Cache<>; // float elements, full causal attention, host memory
    Memory memory{{.layers = layers, .kv_heads = heads, .head_dim = dim}, {.capacity = 16, .batch = 4}};
    // [/cache]

    // [prompt]
    const cellar::Sequence text{0};
    const std::vector<float> k(3 * heads * dim, 1.0F); // from your model: [tokens, heads, dim]
    const std::vector<float> v(3 * heads * dim, 2.0F);

    auto pass =
        memory.begin(cellar::BatchBuilder{text, cellar::Position{0}, 3}); // three tokens, at positions 0, 1 and 2
    expect(pass.has_value());                                             // else pass.error() has the reason
    pass->put(0, k, v);
    const auto keys = pass->keys(0); // [history, heads, dim]
    const auto values = pass->values(0);
    expect(keys.extent(0) == 3 && keys(2, 1, 2) == 1.0F && values(0, 0, 0) == 2.0F);
    // [/prompt]

    // [visible]
    // Token 1 of the batch sees token 0 and itself, but no later token.
    for (const cellar::CellRange run : pass->visible(1)) expect(run == cellar::CellRange{.first = 0, .count = 2});
    const auto mask = pass->mask(); // the same as a matrix: [tokens, history]
    expect(mask(1, 0) == 0 && mask(1, 1) == 0);
    expect(std::isinf(mask(1, 2)));
    pass->commit();
    // [/visible]

    // [next]
    auto next = memory.begin(text, 1); // one token, at position 3
    expect(next.has_value());
    next->put(0, std::vector<float>(heads * dim, 5.0F), std::vector<float>(heads * dim, 6.0F));
    expect(next->keys(0).extent(0) == 4); // the history: the prompt and the new token
    expect(next->keys(0)(3, 0, 0) == 5.0F);
    next->commit();
    expect(memory.tokens(text) == 4);
    // [/next]

    // [dropped]
    {
        auto dropped = memory.begin(text, 1);
        expect(dropped.has_value());
    } // not committed: nothing has changed
    expect(memory.tokens(text) == 4);
    // [/dropped]
}
