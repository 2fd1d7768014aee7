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
    Memory memory{{layers, heads, dim}, {.capacity = 16, .batch = 4}};
    // [/cache]

    // [prompt]
    const std::vector<cellar::Position> positions{{0}, {1}, {2}};
    const std::vector<cellar::Sequence> sequences(3);  // all of them sequence 0
    const std::vector<float> k(3 * heads * dim, 1.0F); // from your model: [tokens, heads, dim]
    const std::vector<float> v(3 * heads * dim, 2.0F);

    auto pass = memory.begin({positions, sequences});
    expect(pass.has_value()); // else pass.error() has the reason
    pass->put(0, k, v);
    auto [keys, values, mask] = pass->get(0);
    expect(keys.extent(0) == 3 && keys(2, 1, 2) == 1.0F && values(0, 0, 0) == 2.0F);
    expect(mask(1, 0) == 0 && mask(1, 1) == 0); // token 1 sees token 0 and itself,
    expect(std::isinf(mask(1, 2)));             // but no later token
    pass->commit();
    // [/prompt]

    // [next]
    const cellar::Position position{3};
    const cellar::Sequence sequence{0};
    auto next = memory.begin({{&position, 1}, {&sequence, 1}});
    expect(next.has_value());
    next->put(0, std::vector<float>(heads * dim, 5.0F), std::vector<float>(heads * dim, 6.0F));
    expect(next->keys(0).extent(0) == 4); // the history: the prompt and the new token
    expect(next->keys(0)(3, 0, 0) == 5.0F);
    next->commit();
    expect(memory.tokens(sequence) == 4);
    // [/next]

    // [dropped]
    {
        const cellar::Position later{4};
        auto dropped = memory.begin({{&later, 1}, {&sequence, 1}});
        expect(dropped.has_value());
    } // not committed: nothing has changed
    expect(memory.tokens(sequence) == 4);
    // [/dropped]
}
