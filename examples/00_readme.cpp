// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The example of the README. A stand-in replaces the model's computation.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int layers = 2;
constexpr int heads = 2;
constexpr int dim = 4;

struct Projections {
    std::vector<float> q; ///< [tokens, heads, dim], as the others
    std::vector<float> k;
    std::vector<float> v;
};

/// A layer's queries, keys and values for the batch.
Projections project(std::int32_t tokens, int layer) {
    const auto rows = [&](float first) {
        std::vector<float> numbers(static_cast<std::size_t>(tokens * heads * dim));
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i) + first);
        return numbers;
    };
    const auto number = static_cast<float>(layer);
    return {rows(number), rows(number + 0.25F), rows(number + 0.5F)};
}

bool check(bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "expected: %s\n", what);
    return holds;
}

} // namespace

int main() {
    // [readme]
    using Memory = cellar::Cache<cellar::StandardV<cellar::half>,  // how keys and values are stored
                                 cellar::SlidingWindow<4096>,      // which tokens a token sees
                                 cellar::RopeShift<cellar::Neox>>; // how a key changes with its position

    Memory memory{{.layers = layers, .kv_heads = heads, .head_dim = dim}, // allocates all memory
                  {.sequences = 8, .capacity = 32768, .batch = 512},
                  cellar::SlidingWindow<4096>{},
                  cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(dim)}};

    const cellar::Sequence alice{0};
    const cellar::Sequence bob{1};
    const int tokens = 5;
    auto pass = memory.begin(alice, tokens); // the next five of this sequence
    if (!pass) return 1;                     // refused, for example Reason::full: nothing has changed

    std::vector<float> out(tokens * heads * dim); // [tokens, heads, dim]
    for (int layer = 0; layer < layers; ++layer) {
        const auto [q, k, v] = project(tokens, layer); // of your model, each [tokens, heads, dim]
        pass->put(layer, k, v);
        cellar::attend(*pass, layer, q, out); // or your own attention, over views of the memory
    }
    pass->commit(); // a pass that is not committed changes nothing

    const auto shared =
        memory.copy_prefix(alice, bob, cellar::Position{4}); // shares the first four tokens; no data moves
    const auto removed =
        memory.remove(bob, cellar::Position{1}, cellar::Position{3}); // removes two of them; the last one moves to 1
    // [/readme]

    bool good = check(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x) && x != 0; }),
                      "attention for every token");
    good = check(shared.has_value(), "a shared prefix") && good;
    good = check(removed.has_value(), "room for the shift") && good;
    good = check(memory.tokens(alice) == 5 && memory.tokens(bob) == 2, "five tokens and two") && good;
    good = check(memory.statistics().shared == 1, "position 0 is still shared") && good;
    return good ? 0 : 1;
}
