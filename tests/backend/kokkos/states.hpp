// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/passes.hpp"
#include "tokens.hpp"
#include <cellar/backend/host.hpp>
#include <cellar/recurrent/recurrent_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cellar_test {

struct Wide : cellar::StateTensor<2> {};
struct Narrow : cellar::StateTensor<1, cellar::half> {};

/// A stand-in for a model's computation. Halving is exact, so devices and the host get equal results.
template <class T>
struct Step {
    T* state;
    float word;

    CELLAR_FUNCTION void operator()(std::int64_t i) const {
        state[i] = static_cast<T>(0.5F * static_cast<float>(state[i]) + word + static_cast<float>(i % 7));
    }
};

template <class Backend, class T>
void run(const Backend& backend, const Step<T>& step, std::int64_t size) {
    if constexpr (requires { backend.space(); }) {
        using Policy = Kokkos::RangePolicy<typename Backend::execution_space, Kokkos::IndexType<std::int64_t>>;
        Kokkos::parallel_for("step", Policy(backend.space(), 0, size), step);
    } else {
        for (std::int64_t i = 0; i < size; ++i) step(i);
    }
}

enum class Fenced { yes, no };

/// A model of two recurrent layers on a backend.
template <class Backend>
class StepModel {
public:
    using Memory = cellar::RecurrentMemory<cellar::States<Wide, Narrow>, Backend>;

    void feed(const Text& tokens, Fenced fenced = Fenced::yes) {
        auto pass = memory.begin(batch_of(tokens));
        REQUIRE(pass);
        for (int layer = 0; layer < 2; ++layer) {
            for (const cellar::MicroBatch& micro_batch : pass->micro_batches()) {
                step_all(micro_batch, tokens, pass->template get<Wide>(layer, micro_batch));
                step_all(micro_batch, tokens, pass->template get<Narrow>(layer, micro_batch));
                pass->put(layer, micro_batch);
            }
        }
        pass->commit();
        if (fenced == Fenced::yes) memory.fence();
    }

    template <class Tag, class Space>
    std::vector<float> elements(int layer, int sequence) const {
        return elements_of<Space>(memory.template view<Tag>(layer, memory.state(cellar::Sequence{sequence})));
    }

    Memory memory{cellar::StateShape{2, {{3, 40}, {7}}}, {.sequences = 3, .batch = 12, .rollback = 2, .snapshots = 1}};

private:
    template <class View>
    void step_all(const cellar::MicroBatch& micro_batch, const Text& tokens, const View& states) {
        for (std::int32_t i = 0; i < micro_batch.sequences(); ++i)
            for (const std::int32_t token : micro_batch.tokens(i)) {
                const auto word = static_cast<float>(tokens[static_cast<std::size_t>(token)].word);
                auto* const state = states.pointer + i * states.stride(0);
                run(memory.backend(), Step<typename View::element_type>{state, word}, states.stride(0));
            }
    }
};

/// Runs passes over sequences of different lengths, with shared prefixes and removed tokens, on a device and on the
/// host. Checks that states are equal.
template <class Backend>
void check_states() {
    using Space = typename Backend::memory_space;
    StepModel<cellar::HostBackend> host;
    StepModel<Backend> device;
    const auto feed = [&](const Text& tokens) {
        host.feed(tokens);
        device.feed(tokens);
        for (int layer = 0; layer < 2; ++layer)
            for (int sequence = 0; sequence < 2; ++sequence) {
                CHECK(host.elements<Wide, Kokkos::HostSpace>(layer, sequence)
                      == device.template elements<Wide, Space>(layer, sequence));
                CHECK(host.elements<Narrow, Kokkos::HostSpace>(layer, sequence)
                      == device.template elements<Narrow, Space>(layer, sequence));
            }
    };
    feed(text(0, 0, 5) + text(1, 0, 3, 50));
    feed(text(0, 5, 1, 6) + text(1, 3, 1, 53));
    REQUIRE(host.memory.remove(cellar::Sequence{0}, cellar::Position{5}, cellar::to_end));
    REQUIRE(device.memory.remove(cellar::Sequence{0}, cellar::Position{5}, cellar::to_end));
    REQUIRE(host.memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{2}, cellar::Position{5}));
    REQUIRE(device.memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{2}, cellar::Position{5}));
    feed(text(2, 5, 2, 20) + text(0, 5, 4, 30) + text(1, 4, 1, 54));
    REQUIRE(host.memory.copy_prefix(cellar::Sequence{2}, cellar::Sequence{1}, cellar::Position{7}));
    REQUIRE(device.memory.copy_prefix(cellar::Sequence{2}, cellar::Sequence{1}, cellar::Position{7}));
    feed(text(1, 7, 3, 60));
}

} // namespace cellar_test
