// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Taking tokens out of the middle: the later ones move down, and their keys turn with them.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <cmath>
#include <vector>

int main() {
    const std::vector<cellar::Position> positions{{0}, {1}, {2}, {3}, {4}};
    const std::vector<cellar::Sequence> sequences(5);
    const cellar::Sequence text{0};
    const cellar::CacheLimits limits{.capacity = 8, .batch = 5};
    const cellar::CacheShape shape{1, 1, 2};

    // [keys]
    // A head of two elements is one rotary pair. Before its rotation every key here is (1, 0); at
    // position p it is turned by p * frequency.
    const double frequency = 0.5;
    std::vector<float> k;
    for (const cellar::Position p : positions) {
        k.push_back(static_cast<float>(std::cos(p.value * frequency)));
        k.push_back(static_cast<float>(std::sin(p.value * frequency)));
    }
    // [/keys]

    // [remove]
    using Shift = cellar::RopeShift<cellar::Neox>;
    cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, Shift> memory{shape, limits, cellar::FullCausal{},
                                                                              Shift{{frequency}}};
    auto pass = memory.begin({positions, sequences});
    expect(pass.has_value());
    pass->put(0, k, k);
    pass->commit();

    expect(memory.remove(text, {1}, {3}).has_value()); // positions 1 and 2
    expect(memory.tokens(text) == 3);                  // 0, and 3 and 4 that now are 1 and 2
    // [/remove]

    // [turned]
    const cellar::Position position{3}; // the next one
    auto next = memory.begin({{&position, 1}, {&text, 1}});
    expect(next.has_value());
    const auto keys = next->keys(0); // the fifth token is still in the fifth cell, at position 2
    expect(std::abs(keys(4, 0, 0) - static_cast<float>(std::cos(2 * frequency))) < 1e-6F);
    expect(std::abs(keys(4, 0, 1) - static_cast<float>(std::sin(2 * frequency))) < 1e-6F);
    // [/turned]

    // [refusal]
    cellar::Cache<> still{shape, limits}; // DisabledShift: positions cannot change
    auto other = still.begin({positions, sequences});
    expect(other.has_value());
    other->commit();
    expect(still.remove(text, {1}, {3}).error() == cellar::Reason::cannot_shift);
    expect(still.tokens(text) == 5);                             // nothing has changed
    expect(still.remove(text, {3}, cellar::to_end).has_value()); // the end can always go
    // [/refusal]
}
