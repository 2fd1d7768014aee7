// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Recurrent layers: states that last from pass to pass, can be rewound and are shared without a copy.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <cstddef>
#include <vector>

namespace {

// [states]
// In each layer of this model, the state of a sequence consists of two tensors.
struct Conv : cellar::StateTensor<2> {};                  // inputs of the last tokens: [width, channels]
struct Ssm : cellar::StateTensor<3, cellar::bfloat16> {}; // the state matrices: [heads, rows, columns]

using Memory = cellar::RecurrentMemory<cellar::States<Conv, Ssm>>;
// [/states]

constexpr int layers = 2;
constexpr int width = 3;

/// Adds one token to the state of one sequence: the inputs move up by one, the matrices decay and add the token. (A
/// real model would process all sequences of a micro-batch at once.)
template <class ConvView, class SsmView>
void step(const ConvView& conv, const SsmView& ssm, std::int64_t sequence, float input) {
    for (std::int64_t c = 0; c < conv.extent(2); ++c) {
        for (std::int64_t t = 0; t + 1 < width; ++t) conv(sequence, t, c) = conv(sequence, t + 1, c);
        conv(sequence, width - 1, c) = input;
    }
    for (std::int64_t h = 0; h < ssm.extent(1); ++h)
        for (std::int64_t r = 0; r < ssm.extent(2); ++r)
            for (std::int64_t c = 0; c < ssm.extent(3); ++c) {
                auto& value = ssm(sequence, h, r, c);
                value = static_cast<cellar::bfloat16>(0.5F * static_cast<float>(value) + input);
            }
}

/// One pass over a batch whose inputs are `words`.
void feed(Memory& memory, const cellar::Batch& batch, const std::vector<float>& words) {
    // [pass]
    auto pass = memory.begin(batch); // a position and a sequence for each token
    expect(pass.has_value());        // else refused, for example Reason::not_next: nothing has changed
    for (int layer = 0; layer < layers; ++layer) {
        // Within a micro-batch, all sequences have the same number of tokens.
        for (const cellar::MicroBatch& micro_batch : pass->micro_batches()) {
            const auto conv = pass->get<Conv>(layer, micro_batch); // [micro_batch.sequences(), width, channels]
            const auto ssm = pass->get<Ssm>(layer, micro_batch);   // [micro_batch.sequences(), heads, rows, columns]
            for (std::int32_t i = 0; i < micro_batch.sequences(); ++i) // your kernels, which update the views in place
                for (const std::int32_t token : micro_batch.tokens(i)) // indices into the batch
                    step(conv, ssm, i, words[static_cast<std::size_t>(token)]);
            pass->put(layer, micro_batch);
        }
    }
    pass->commit(); // a pass that is not committed changes nothing
    // [/pass]
}

/// The newest input of the first layer's convolution.
float last_input(const Memory& memory, cellar::Sequence s) {
    return memory.view<Conv>(0, memory.state(s))(width - 1, 0);
}

} // namespace

int main() {
    // [memory]
    const cellar::StateShape shape{layers, {{width, 4}, {2, 4, 4}}}; // the extents of Conv and Ssm
    static_assert(Memory::bytes_per_sequence(cellar::StateShape{layers, {{width, 4}, {2, 4, 4}}}) == 2 * (48 + 64));
    Memory memory{shape,
                  {.sequences = 3,
                   .batch = 8,
                   .rollback = 2,              // the newest two tokens can be removed
                   .checkpoints = 16,          // keeps up to 16 checkpoints,
                   .checkpoint_interval = 4}}; // at positions 4, 8, ...
    // [/memory]

    const cellar::Sequence alice{0};
    const cellar::Sequence bob{1};
    std::vector<cellar::Position> positions{cellar::Position{0}, cellar::Position{1}, cellar::Position{2},
                                            cellar::Position{3}, cellar::Position{4}, cellar::Position{5},
                                            cellar::Position{6}};
    feed(memory, {positions, std::vector<cellar::Sequence>(7, alice)}, {10, 11, 12, 13, 14, 15, 16});
    expect(memory.next(alice) == cellar::Position{7});
    expect(last_input(memory, alice) == 16);

    // [resume]
    expect(memory.can_resume(alice, cellar::Position{5})); // within the rollback
    expect(memory.can_resume(alice, cellar::Position{4})); // a checkpoint
    expect(!memory.can_resume(alice, cellar::Position{3}));
    expect(memory.resumable_prefix(alice, cellar::Position{3}) == cellar::Position{0}); // it has to be fed again from 0
    // [/resume]

    // [share]
    expect(memory.copy_prefix(alice, bob, cellar::Position{4})
               .has_value()); // bob continues from the checkpoint; nothing is copied
    expect(last_input(memory, bob) == 13);
    expect(memory.state(bob).slot != memory.state(alice).slot);

    expect(memory.rewind(alice, cellar::Position{6}).has_value()); // takes the newest token back
    expect(last_input(memory, alice) == 15);
    expect(memory.remove(alice, cellar::Position{1}, cellar::Position{3}).error()
           == cellar::Reason::cannot_cut); // a state cannot lose its middle
    // [/share]

    // One batch for both. Alice has three tokens and bob one, so the pass needs more than one micro-batch.
    positions = {cellar::Position{6}, cellar::Position{4}, cellar::Position{7}, cellar::Position{8}};
    feed(memory, {positions, std::vector<cellar::Sequence>{alice, bob, alice, alice}}, {26, 34, 27, 28});
    expect(last_input(memory, alice) == 28);
    expect(last_input(memory, bob) == 34);
    expect(memory.view<Conv>(0, memory.state(bob))(0, 0) == 12); // 12, 13, 34: none of alice's later tokens
}
