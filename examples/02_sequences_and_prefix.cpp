// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Two conversations in one cache that begin with the same words.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <vector>

namespace {

/// One pass over the batch. Keys and values are the words.
template <class Memory>
void feed(Memory& memory, const cellar::Batch& batch, const std::vector<float>& words) {
    auto pass = memory.begin(batch);
    expect(pass.has_value());
    pass->put(0, words, words); // one head of one element
    pass->commit();
}

} // namespace

int main() {
    // [cache]
    cellar::Cache<> memory{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 16, .batch = 8}};
    const cellar::Sequence alice{0};
    const cellar::Sequence bob{1};
    // [/cache]

    // [share]
    feed(memory, cellar::BatchBuilder{alice, cellar::Position{0}, 4}, {10, 11, 12, 13});

    expect(memory.copy_prefix(alice, bob, cellar::Position{3})
               .has_value()); // bob shares the first three tokens; no data moves
    expect(memory.tokens(bob) == 3);
    expect(memory.statistics().shared == 3);
    expect(memory.statistics().cells - memory.statistics().free == 4); // not seven
    // [/share]

    // [batch]
    // A pass may mix sequences. Each token continues its own sequence.
    auto pass = memory.begin(cellar::BatchBuilder{}.add(alice, memory.next(alice)).add(bob, memory.next(bob)));
    expect(pass.has_value());
    pass->put(0, std::vector<float>{14, 23}, std::vector<float>{14, 23});
    const auto keys = pass->keys(0);
    const cellar::Cell first = pass->history().first; // the cell of keys(0, ...)
    float seen[2] = {0, 0};                           // sum of the keys that each token sees
    for (int token = 0; token < 2; ++token)
        for (const cellar::CellRange run : pass->visible(token))
            for (cellar::Cell cell = run.first; cell < run.first + run.count; ++cell)
                seen[token] += keys(cell - first, 0, 0);
    expect(seen[0] == 10 + 11 + 12 + 13 + 14); // alice
    expect(seen[1] == 10 + 11 + 12 + 23);      // bob
    pass->commit();
    // [/batch]
}
