// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The example of the README. A stand-in replaces the model's computation.
#include <cellar/cellar.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int layers = 2;
constexpr int heads = 2;
constexpr int dim = 4;

/// A layer's queries, keys or values for the batch: [tokens, heads, dim].
std::vector<float> project(std::int32_t tokens, int layer) {
    std::vector<float> rows(static_cast<std::size_t>(tokens * heads * dim));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i) + static_cast<float>(layer));
    return rows;
}

/// Attention of every token, for the first head. Returns false if an output is not finite.
template <class Keys, class Values, class Mask>
bool attend(const std::vector<float>& q, const Keys& keys, const Values& values, const Mask& mask) {
    for (std::int64_t t = 0; t < mask.extent(0); ++t) {
        float sum = 0;
        float weights = 0;
        for (std::int64_t c = 0; c < mask.extent(1); ++c) {
            float score = mask(t, c);
            for (std::int64_t d = 0; d < dim; ++d)
                score += q[static_cast<std::size_t>(t * heads * dim + d)] * static_cast<float>(keys(c, 0, d));
            sum += std::exp(score) * static_cast<float>(values(c, 0, 0));
            weights += std::exp(score);
        }
        if (!std::isfinite(sum / weights)) return false;
    }
    return true;
}

bool check(bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "expected: %s\n", what);
    return holds;
}

} // namespace

int main() {
    bool finite = true;

    // [readme]
    using Memory = cellar::Cache<cellar::StandardV<cellar::half>,  // how keys and values are stored
                                 cellar::SlidingWindow<4096>,      // which tokens a token sees
                                 cellar::RopeShift<cellar::Neox>>; // how a key changes with its position

    Memory memory{{layers, heads, dim}, // allocates all memory
                  {.sequences = 8, .capacity = 32768, .batch = 512},
                  cellar::SlidingWindow<4096>{},
                  cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(dim)}};

    const cellar::Sequence alice{0};
    const cellar::Sequence bob{1};
    auto pass = memory.begin(cellar::Tokens{alice, memory.next(alice), 5}); // the next five tokens of this sequence
    if (!pass) return 1; // refused, for example Reason::full: nothing has changed
    for (int layer = 0; layer < layers; ++layer) {
        const auto rows = project(pass->tokens(), layer);    // q, k and v of your model
        pass->put(layer, rows, rows);                        // k and v: [tokens, heads, dim]
        const auto [keys, values, mask] = pass->get(layer);  // views of the history, in place
        finite = attend(rows, keys, values, mask) && finite; // your attention
    }
    pass->commit(); // a pass that is not committed changes nothing

    const auto shared = memory.copy_prefix(alice, bob, 4); // shares the first four tokens; no data moves
    const auto removed = memory.remove(bob, {1}, {3});     // removes two of them; the last one moves to 1
    // [/readme]

    bool good = check(finite, "a finite output for every token");
    good = check(shared.has_value(), "a shared prefix") && good;
    good = check(removed.has_value(), "room for the shift") && good;
    good = check(memory.tokens(alice) == 5 && memory.tokens(bob) == 2, "five tokens and two") && good;
    good = check(memory.statistics().shared == 1, "position 0 is still shared") && good;
    return good ? 0 : 1;
}
