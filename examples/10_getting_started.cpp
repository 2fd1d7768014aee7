// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program of docs/getting-started.md, whose output tests/docs/outputs.py compares with the page.
// [program]
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

using cellar::Position;
using cellar::Sequence;

constexpr int n_layers = 4, n_heads = 8, n_kv_heads = 2, head_dim = 64; // as config.json has them
using Memory = cellar::Cache<cellar::Blocked<cellar::bf16>>;            // what we recommend

// Runs the next tokens of a sequence. Your model computes q, k and v, and goes on with out.
void run(Memory& memory, Sequence s, int tokens) {
    auto pass = memory.begin(s, tokens);
    if (!pass) {
        std::printf("refused: %s\n", to_string(pass.error()).c_str());
        return;
    }
    for (int layer = 0; layer < n_layers; ++layer) {
        std::vector<float> q(tokens * n_heads * head_dim), k(tokens * n_kv_heads * head_dim), v = k, out = q;
        pass->put(layer, k, v);
        cellar::attend(*pass, layer, q, out);
    }
    pass->commit(); // without it, nothing has changed
}

int main() {
    Memory memory{{.layers = n_layers, .kv_heads = n_kv_heads, .head_dim = head_dim},
                  {.sequences = 2, .capacity = 4096, .batch = 512}}; // takes all memory, once
    std::printf("%lld MiB for %d tokens\n", static_cast<long long>(memory.bytes() >> 20), memory.cells());

    const Sequence chat{0}, other{1};
    for (int left = 1000; left > 0; left -= 512) run(memory, chat, std::min(left, 512)); // the prompt, in pieces
    for (int i = 0; i < 24; ++i) run(memory, chat, 1);                                   // the answer
    std::printf("answered: the next position is %d\n", memory.next(chat).value);

    memory.rewind(chat, Position{1000}).value(); // another answer to the same prompt
    std::printf("again from %d\n", memory.next(chat).value);

    memory.copy_prefix(chat, other, Position{1000}).value(); // another user with the same prompt
    std::printf("%d cells for both\n", memory.cells() - memory.free_cells());

    run(memory, chat, 600);                                   // more than `batch`: refused
    memory.remove(chat, Position{0}, cellar::to_end).value(); // the chat is over
}
// [/program]
