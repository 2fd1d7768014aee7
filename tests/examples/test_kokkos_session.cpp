// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Sessions with device work of Kokkos on the host: the kernels are those of devices, and rows are copied to the device
// memory and back.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/tools.hpp"
#include "generate/cellar_memory.hpp"
#include "generate/kokkos_compute.hpp"
#include "session_outcome.hpp"
#include "tiny_model.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <span>
#include <string_view>
#include <vector>

namespace test_kokkos_session {

namespace {

template <class Layout>
using Memory = llama::CellarMemory<Layout, cellar::RopeShift<cellar::RunTimePairing>,
                                   llama::KokkosCompute<cellar_test::DeviceOnHost>>;

std::vector<llama::Config> configs() {
    return {tiny_config(), tiny_hybrid_config(), tiny_shakespeare_hybrid_config()};
}

} // namespace

TEST_CASE_TEMPLATE("session on Kokkos: logits with a memory equal those without", Layout, cellar::StandardV<float>,
                   cellar::PermutedV<cellar::half>) {
    for (const llama::Config& config : configs()) {
        llama::Llama model{RandomWeights{9}(config)};
        for (const int context : {2, 5, 33, 64}) {
            for (const int batch : {3, 64}) {
                CAPTURE(config.layers());
                CAPTURE(context);
                CAPTURE(batch);
                Memory<Layout> memory{config, {.context = context, .batch = batch}};
                const SessionOutcome o = run_session(model, memory, 40, 60);
                CHECK(o.check.passed());
                CHECK(o.check.positions > 60);
                if (context < 64) CHECK(o.check.after_shift > 0);
            }
        }
    }
}

TEST_CASE("session on Kokkos: tokens that were tried and removed leave no trace") {
    const llama::TextLimits limits{.context = 24, .batch = 8, .rollback = 5};
    for (const llama::Config& config : configs()) {
        llama::Llama model{RandomWeights{5}(config)};
        Memory<cellar::StandardV<float>> memory{config, limits};
        llama::Session session{model, memory};
        for (int round = 0; round < 40; ++round) {
            const int max = std::min(session.room(), limits.rollback + 1);
            std::vector<int> tried;
            for (int i = 0; i < 1 + round % max; ++i) tried.push_back((round * round + i) % config.vocab_size);
            session.try_out(tried);
            session.keep(1 + round % static_cast<int>(tried.size()));
        }
        CHECK(session.shifts() > 0);
        CHECK(session.check().passed());
    }
}

TEST_CASE("session on Kokkos: a token takes one fence per layer and allocates nothing") {
    for (const llama::Config& config : configs()) {
        llama::Llama model{RandomWeights{5}(config)};
        Memory<cellar::PermutedV<cellar::half>> memory{config, {.context = 64, .batch = 8}};
        llama::Session session{model, memory};
        session.feed(std::vector<int>(16, 1));
        int fences = 0;
        int allocations = 0;
        const cellar_test::Listener listener{
            {.fence = [&](std::string_view) { ++fences; }, .allocation = [&](std::string_view) { ++allocations; }}};
        for (int token = 0; token < 30; ++token) session.feed(std::vector<int>{token});
        CHECK(fences == 30 * config.layers());
        CHECK(allocations == 0);
    }
}

} // namespace test_kokkos_session
