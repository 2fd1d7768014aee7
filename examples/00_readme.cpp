// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program of the README, whose output tests/docs/outputs.py compares with the page.
// [readme]
#include <cellar/attention/attend.hpp>
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>

#include <cstdio>
#include <vector>

constexpr int n_layers = 2, n_heads = 8, n_kv_heads = 2, head_dim = 64; // of your model
using Memory = cellar::Cache<cellar::Blocked<cellar::bf16>>;            // full attention; keys and values in bfloat16

// One forward pass. In each layer, the keys and values of the new tokens go into the cache, and attention reads it.
void forward(Memory& memory, const cellar::Batch& batch) {
    auto pass = memory.begin(batch);
    if (!pass) { // refused: nothing has changed
        std::puts(to_string(pass.error()).c_str());
        return;
    }
    for (int layer = 0; layer < n_layers; ++layer) {
        std::vector<float> q(batch.tokens() * n_heads * head_dim, 1.0F); // from your model
        std::vector<float> k(batch.tokens() * n_kv_heads * head_dim, 1.0F), v = k, out(q.size());
        pass->put(layer, k, v);
        cellar::attend(*pass, layer, q, out);
    }
    pass->commit();
}

int main() {
    Memory memory{{.layers = n_layers, .kv_heads = n_kv_heads, .head_dim = head_dim}, {.sequences = 3, .cells = 192}};
    const cellar::Sequence alice{0}, bob{1}, carol{2};

    forward(memory, cellar::BatchBuilder{alice, cellar::Position{0}, 20}); // prefill: a prompt of 20 tokens
    memory.copy_prefix(alice, bob, cellar::to_end).value();                // Bob shares it; no data moves
    for (int step = 0; step < 10; ++step)                                  // decode: both in one batch
        forward(memory, cellar::BatchBuilder{}.add(alice, memory.next(alice)).add(bob, memory.next(bob)));
    memory.rewind(bob, cellar::Position{26}).value();                       // takes Bob's last four tokens back
    forward(memory, cellar::BatchBuilder{carol, cellar::Position{0}, 180}); // more than fits
    std::fputs(describe(memory).c_str(), stdout);
}
// [/readme]
