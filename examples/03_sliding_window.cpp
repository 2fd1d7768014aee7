// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A window keeps the newest tokens and forgets the others, so a text may grow without limit.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <vector>

namespace {

/// Feeds tokens 0 to n - 1 of sequence 0, one by one.
template <class Memory>
void feed(Memory& memory, int n) {
    for (int position = 0; position < n; ++position) {
        auto pass = memory.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{position}});
        expect(pass.has_value());
        pass->put(0, std::vector<float>{1}, std::vector<float>{1});
        pass->commit();
    }
}

} // namespace

int main() {
    const cellar::CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 1};
    const cellar::CacheLimits limits{.capacity = 1000, .batch = 1};
    const cellar::Sequence text{0};

    // [window]
    cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<3>> memory{shape, limits};
    expect(memory.cells() == 3 + 1); // the window and one batch, independent of the capacity
    feed(memory, 500);
    expect(memory.tokens(text) == 3);
    expect(memory.range(text)->first.value == 497 && memory.range(text)->last.value == 499);
    // [/window]

    // [resume]
    expect(memory.can_resume(text, cellar::Position{500}));  // sees 498 and 499, and itself
    expect(memory.can_resume(text, cellar::Position{499}));  // sees 497 and 498: the last token can be replaced
    expect(!memory.can_resume(text, cellar::Position{498})); // would see 496, which is forgotten
    // [/resume]

    // [options]
    // Retention keeps tokens older than the window, so that the text can resume further back. Sinks are never
    // forgotten.
    using Window = cellar::SlidingWindow<>; // width at run time
    cellar::Cache<cellar::StandardV<float>, Window> more{shape, limits, Window{3, {.retention = 10, .sinks = 2}}};
    feed(more, 500);
    expect(more.tokens(text) == 2 + 10);
    expect(more.can_resume(text, cellar::Position{492}) && !more.can_resume(text, cellar::Position{491}));
    expect(more.range(text)->first.value == 0);
    // [/options]
}
