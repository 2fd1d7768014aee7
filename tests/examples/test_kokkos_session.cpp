// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Texts with their memory on Kokkos, where it does what it does on devices: the same kernels, and rows that are copied
// there and back.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/tools.hpp"
#include "generate/choosing.hpp"
#include "generate/kokkos_work.hpp"
#include "session_outcome.hpp"
#include "tiny_model.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace {

template <class Layout>
using Work = llama::KokkosLayerWork<Layout, cellar_test::DeviceOnHost>;

template <class Layout>
std::unique_ptr<llama::TextMemory> memory_for(const llama::Config& config, const llama::SessionLimits& limits) {
    return llama::memory_of<Work, Layout, cellar::Neox>(config, limits.context, limits.batch, limits.rollback);
}

std::vector<llama::Config> configs() {
    return {tiny_config(), tiny_hybrid_config(), tiny_known_hybrid_config()};
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
                const llama::SessionLimits limits{.context = context, .batch = batch};
                const SessionOutcome o = run_session(model, *memory_for<Layout>(config, limits), limits, 40, 60);
                CHECK(o.check.passed());
                CHECK(o.check.positions > 60);
                if (context < 64) CHECK(o.check.after_shift > 0);
            }
        }
    }
}

TEST_CASE("session on Kokkos: tokens that were tried and taken back have never been") {
    using Layout = cellar::StandardV<float>;
    const llama::SessionLimits limits{.context = 24, .batch = 8, .rollback = 5};
    for (const llama::Config& config : configs()) {
        llama::Llama model{RandomWeights{5}(config)};
        const auto memory = memory_for<Layout>(config, limits);
        llama::Session session{model, *memory, limits};
        for (int turn = 0; turn < 40; ++turn) {
            const int most = std::min(session.room(), limits.rollback + 1);
            std::vector<int> tried;
            for (int i = 0; i < 1 + turn % most; ++i) tried.push_back((turn * turn + i) % config.vocab_size);
            session.try_out(tried);
            session.keep(1 + turn % static_cast<int>(tried.size()));
        }
        CHECK(session.shifts() > 0);
        CHECK(session.check().passed());
    }
}

TEST_CASE("session on Kokkos: a token takes one fence a layer, and no memory") {
    const llama::SessionLimits limits{.context = 64, .batch = 8};
    for (const llama::Config& config : configs()) {
        llama::Llama model{RandomWeights{5}(config)};
        const auto memory = memory_for<cellar::PermutedV<cellar::half>>(config, limits);
        llama::Session session{model, *memory, limits};
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
