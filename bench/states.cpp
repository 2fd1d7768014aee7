// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"
#include <cellar/recurrent/recurrent_memory.hpp>

#include <cstddef>
#include <cstring>
#include <vector>

/// Recurrent states with 24 layers of Mamba 2 2.7B. `states_begin` is the `begin` of a decode step, `states_get_put`
/// fetches and stores all tensors of all layers, `states_checkpoint` keeps a sequence's state so that its next token
/// writes to another slot, `states_rollback` removes tokens. For comparison, `memcpy` copies as many bytes: the cost of
/// the last two if states were copied.
namespace cellar::bench {
namespace {

struct Conv : StateTensor<2> {};
struct Ssm : StateTensor<3> {};
using Mamba = RecurrentMemory<States<Conv, Ssm>>;

constexpr int layers = 24;

StateShape mamba_shape() {
    return {layers, {{3, 5376}, {80, 64, 128}}};
}

// A pass with the next token of each of n sequences. It writes no states, because their contents do not matter here.
void step(Mamba& memory, std::int32_t n) {
    TokenList tokens;
    for (std::int32_t s = 0; s < n; ++s) tokens.add(cellar::Sequence{s}, memory.next(cellar::Sequence{s}));
    auto pass = memory.begin(tokens.batch());
    for (int layer = 0; layer < layers; ++layer)
        for (const MicroBatch& micro_batch : pass->micro_batches()) pass->mark_written(layer, micro_batch);
    pass->commit();
}

void measure_begin(benchmark::State& state, std::int32_t sequences) {
    RecurrentMemory<States<Conv>> memory{StateShape{1, {{1, 1}}}, {.sequences = sequences, .batch = sequences}};
    TokenList tokens;
    for (std::int32_t s = 0; s < sequences; ++s) tokens.add(cellar::Sequence{s}, Position{0});
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        auto pass = memory.begin(tokens.batch());
        watch.stop();
        pass->mark_written(0, pass->micro_batches().front());
        pass->commit();
        tokens.advance(1);
    });
}

void measure_get_put(benchmark::State& state) {
    Mamba memory{mamba_shape(), {.sequences = 1, .batch = 1}};
    step(memory, 1);
    measure(state, [&](Stopwatch& watch) {
        TokenList tokens;
        tokens.add(cellar::Sequence{0}, memory.next(cellar::Sequence{0}));
        auto pass = memory.begin(tokens.batch());
        watch.start();
        for (int layer = 0; layer < layers; ++layer) {
            const MicroBatch& micro_batch = pass->micro_batches().front();
            benchmark::DoNotOptimize(pass->get<Ssm>(layer, micro_batch).pointer);
            pass->put(layer, micro_batch);
        }
        watch.stop();
        pass->commit();
    });
}

void measure_checkpoint(benchmark::State& state) {
    Mamba memory{mamba_shape(), {.sequences = 1, .batch = 1, .checkpoints = 3}};
    step(memory, 1);
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        static_cast<void>(memory.checkpoint(cellar::Sequence{0}));
        step(memory, 1);
        watch.stop();
    });
}

void measure_rollback(benchmark::State& state, std::int32_t tokens) {
    Mamba memory{mamba_shape(), {.sequences = 1, .batch = 1, .rollback = tokens}};
    for (int i = 0; i < 2; ++i) step(memory, 1);
    measure(state, [&](Stopwatch& watch) {
        for (std::int32_t i = 0; i < tokens; ++i) step(memory, 1);
        const Position back = memory.next(cellar::Sequence{0}) - tokens;
        watch.start();
        const bool done = memory.remove(cellar::Sequence{0}, back, to_end).has_value();
        watch.stop();
        expect(done && memory.next(cellar::Sequence{0}) == back, "states_rollback: remove was refused");
    });
}

// Copies the state of one sequence `times` times, layer by layer.
void measure_copy(benchmark::State& state, int times) {
    const std::size_t row = static_cast<std::size_t>(Mamba::bytes_per_sequence(mamba_shape())) / layers;
    const std::vector<char> from(row * layers, 1);
    std::vector<char> to(row * layers, 2);
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        for (int i = 0; i < times; ++i)
            for (std::size_t layer = 0; layer < layers; ++layer)
                std::memcpy(to.data() + layer * row, from.data() + layer * row, row);
        watch.stop();
    });
}

} // namespace

void add_states() {
    for (const std::int32_t sequences : {1, 8, 64})
        add("states_begin/mamba2/" + std::to_string(sequences) + "/4k/cellar",
            [=](benchmark::State& state) { measure_begin(state, sequences); });
    const auto add_job = [](const std::string& job, int tokens, int copies, auto measured) {
        const std::string name = job + "/mamba2/" + std::to_string(tokens) + "/4k";
        add(name + "/cellar", measured, 25);
        add(
            name + "/memcpy", [=](benchmark::State& state) { measure_copy(state, copies); }, 25);
    };
    add_job("states_get_put", 1, 2, measure_get_put);
    add_job("states_checkpoint", 1, 1, measure_checkpoint);
    for (const std::int32_t tokens : {1, 8})
        add_job("states_rollback", tokens, 1, [=](benchmark::State& state) { measure_rollback(state, tokens); });
}

} // namespace cellar::bench
