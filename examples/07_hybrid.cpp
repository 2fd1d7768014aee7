// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One memory for layers with a window, with full attention and with recurrent states: a fork, a draft that is rolled
// back, a refusal.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace {

// [pattern]
struct Sum : cellar::StateTensor<1> {}; // state of a recurrent layer: [channels]

using Sliding = cellar::Cache<cellar::PermutedV<float>, cellar::SlidingWindow<4>>;
using Full = cellar::Cache<cellar::StandardV<cellar::bf16>>;
using Recurrent = cellar::RecurrentMemory<cellar::States<Sum>>;

// Two layers with a window, one with full attention, one without memory, one recurrent, repeated.
using Pattern = cellar::Repeat<cellar::Times<2, Sliding>, Full, cellar::NoMemory, Recurrent>;
using Memory = cellar::Hybrid<Pattern, Sliding, Full, Recurrent>;

static_assert(Memory::place(7) == cellar::LayerPlace{.member = 1, .layer = 1}); // the second full layer
// [/pattern]

constexpr int layers = 10;

// [work]
/// The work of one layer, whichever memory it has. A real model would compute attention and recurrences here.
struct Layer {
    const std::vector<float>& tokens;

    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        if constexpr (std::is_same_v<Pass, cellar::NoMemory>) {
            // a feed-forward network
        } else if constexpr (requires { pass.micro_batches(); }) {
            for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
                const auto sums = pass.template get<Sum>(layer, micro_batch);
                for (std::int32_t i = 0; i < micro_batch.sequences(); ++i)
                    for (const std::int32_t token : micro_batch.tokens(i))
                        sums(i, 0) += tokens[static_cast<std::size_t>(token)];
                pass.put(layer, micro_batch);
            }
        } else {
            pass.put(layer, tokens, tokens);
            const auto [keys, values, mask] = pass.get(layer);
            static_cast<void>(keys(0, 0, 0)); // your attention
        }
    }
};
// [/work]

/// Runs one pass. Returns false if it was refused.
bool feed(Memory& memory, const cellar::Batch& batch, const std::vector<float>& tokens) {
    // [pass]
    auto pass = memory.begin(batch); // in all members, or in none if one refuses
    if (!pass) return false;
    for (int layer = 0; layer < layers; ++layer) pass->visit(layer, Layer{tokens});
    pass->commit(); // in all members
    // [/pass]
    return true;
}

float sum(const Memory& memory, cellar::Sequence s) {
    const Recurrent& states = memory.member<Recurrent>();
    return states.view<Sum>(0, states.state(s))(0);
}

} // namespace

int main() {
    // [memory]
    Memory memory{layers, // each member has the number of layers that the pattern gives it, and its own limits
                  Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1},
                          {.sequences = 2, .capacity = 1000, .batch = 8},
                          cellar::SlidingWindow<4>{{.retention = 7}}},
                  Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 7, .batch = 8}},
                  Recurrent{{2, {{1}}}, {.sequences = 2, .batch = 8, .rollback = 3}}};
    // [/memory]

    const cellar::Sequence alice{0};
    const cellar::Sequence bob{1};

    expect(feed(memory, cellar::BatchBuilder{alice, cellar::Position{0}, 6}, {1, 2, 3, 4, 5, 6}));
    expect(sum(memory, alice) == 21);

    // [fork]
    expect(memory.copy_prefix(alice, bob, cellar::Position{6})
               .has_value()); // cells and states are shared, nothing is copied
    expect(feed(memory, cellar::BatchBuilder{bob, cellar::Position{6}}, {100}));
    expect(sum(memory, bob) == 121 && sum(memory, alice) == 21);
    // [/fork]

    // [rollback]
    expect(feed(memory, cellar::BatchBuilder{alice, cellar::Position{6}, 3}, {7, 8, 9})); // a draft of three tokens
    expect(memory.can_resume(alice, cellar::Position{7}));                                // all members can resume at 7
    expect(memory.rewind(alice, cellar::Position{7}).has_value());
    expect(sum(memory, alice) == 28); // only the first token of the draft is kept
    // [/rollback]

    // [refusals]
    expect(memory.resumable_prefix(alice, cellar::Position{5}) == cellar::Position{0}); // no older state is kept
    const auto removed = memory.rewind(alice, cellar::Position{5});
    expect(removed.error() == cellar::Refusal{cellar::Reason::cannot_rewind, 2}); // the states refuse,
    expect(memory.member<Full>().tokens(alice) == 7);                             // so the caches remove nothing

    const auto refused = memory.begin(cellar::BatchBuilder{alice, cellar::Position{7}, 8});
    expect(refused.error() == cellar::Reason::full && refused.error().member == 1);
    expect(cellar::to_string(refused.error())
           == "member 1: full: fewer cells are free than the operation needs; needs 8, has 6");
    // [/refusals]
    expect(feed(memory, cellar::BatchBuilder{alice, cellar::Position{7}}, {10}));
    expect(sum(memory, alice) == 38);
}
