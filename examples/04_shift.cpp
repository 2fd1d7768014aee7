// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Removes tokens from the middle of a text. Later tokens move down, and their keys are rotated to match.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <cmath>
#include <vector>

int main() {
    const cellar::Sequence text{0};
    const cellar::CacheLimits limits{.capacity = 8, .batch = 5};
    const cellar::CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 2};

    // [keys]
    // A head of two elements is one rotary pair. Every key is (1, 0), rotated by position * frequency.
    const double frequency = 0.5;
    std::vector<float> k;
    for (int position = 0; position < 5; ++position) {
        k.push_back(static_cast<float>(std::cos(position * frequency)));
        k.push_back(static_cast<float>(std::sin(position * frequency)));
    }
    // [/keys]

    // [remove]
    using Shift = cellar::RopeShift<cellar::Neox>;
    cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, Shift> memory{shape, limits, cellar::FullCausal{},
                                                                              Shift{{frequency}}};
    auto pass = memory.begin(cellar::BatchBuilder{text, cellar::Position{0}, 5});
    expect(pass.has_value());
    pass->put(0, k, k);
    pass->commit();

    expect(memory.remove(text, cellar::Position{1}, cellar::Position{3}).has_value()); // positions 1 and 2
    expect(memory.tokens(text) == 3); // 0, and the former 3 and 4 at 1 and 2
    // [/remove]

    // [rotated]
    auto next = memory.begin(text, 1); // at position 3
    expect(next.has_value());
    next->put(0, std::vector<float>{1, 0}, std::vector<float>{1, 0});
    const auto keys = next->keys(0); // the fifth token is still in cell 4, but at position 2
    expect(std::abs(keys(4, 0, 0) - static_cast<float>(std::cos(2 * frequency))) < 1e-6F);
    expect(std::abs(keys(4, 0, 1) - static_cast<float>(std::sin(2 * frequency))) < 1e-6F);
    // [/rotated]

    // [refusal]
    cellar::Cache<> fixed{shape, limits}; // DisabledShift: positions cannot change
    auto other = fixed.begin(cellar::BatchBuilder{text, cellar::Position{0}, 5});
    expect(other.has_value());
    other->put(0, k, k);
    other->commit();
    expect(fixed.remove(text, cellar::Position{1}, cellar::Position{3}).error() == cellar::Reason::cannot_shift);
    expect(fixed.tokens(text) == 5);                             // nothing has changed
    expect(fixed.rewind(text, cellar::Position{3}).has_value()); // going back moves no token
    // [/refusal]
}
