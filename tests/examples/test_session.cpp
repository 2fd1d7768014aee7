// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Texts that outgrow their context, with and without caches.
#include "generate/cellar_memory.hpp"
#include "generate/host_compute.hpp"
#include "generate/memory.hpp"
#include "generate/session.hpp"
#include "session_outcome.hpp"
#include "tiny_model.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace test_session {

namespace {

llama::Llama& tiny() {
    static llama::Llama model{RandomWeights{5}(tiny_config())};
    return model;
}

using Rope = cellar::RopeShift<cellar::RunTimePairing>;

// Faulty shifts: they rotate the wrong way, not at all, or by one position too many.
struct RotatesBack : Rope {
    using Rope::Rope;
    Factor factor(int layer, int pair, std::int32_t delta) const { return Rope::factor(layer, pair, -delta); }
};
struct RotatesNothing : Rope {
    using Rope::Rope;
    Factor factor(int layer, int pair, std::int32_t) const { return Rope::factor(layer, pair, 0); }
};
struct RotatesTooFar : Rope {
    using Rope::Rope;
    Factor factor(int layer, int pair, std::int32_t delta) const { return Rope::factor(layer, pair, delta - 1); }
};

template <class Shift>
llama::Check check_with(const llama::Config& config) {
    using Memory = llama::CellarMemory<cellar::StandardV<float>, Shift, llama::HostCompute>;
    Memory memory{config, {.context = 32, .batch = 8}};
    return run_session(tiny(), memory, 10, 100).check;
}

} // namespace

TEST_CASE("session: logits with and without a cache are equal, for every layout, element type and context") {
    for (const char* layout : {"standard", "permuted"}) {
        for (const char* element : {"float", "half", "bf16"}) {
            for (const int context : {1, 2, 3, 4, 5, 6, 7, 16, 33, 64}) {
                for (const int batch : {1, 3, 64}) {
                    CAPTURE(std::string{layout});
                    CAPTURE(std::string{element});
                    CAPTURE(context);
                    CAPTURE(batch);
                    const auto memory =
                        llama::make_memory(tiny().config(), {.context = context, .batch = batch}, {layout, element});
                    const SessionOutcome o = run_session(tiny(), *memory, 40, 60);
                    CHECK(o.check.passed());
                    CHECK(o.check.positions > 60);
                    if (context < 64) CHECK(o.check.after_shift > 0);
                }
            }
        }
    }
}

TEST_CASE("session: a text with recurrent layers is fed again when it outgrows the context") {
    for (const llama::Config& config : {tiny_hybrid_config(), tiny_shakespeare_hybrid_config()}) {
        llama::Llama model{RandomWeights{9}(config)};
        for (const int context : {1, 2, 5, 16, 33, 64}) {
            for (const int batch : {1, 3, 64}) {
                CAPTURE(context);
                CAPTURE(batch);
                const auto memory =
                    llama::make_memory(config, {.context = context, .batch = batch}, {.layout = "permuted"});
                const SessionOutcome o = run_session(model, *memory, 40, 60);
                CHECK(o.check.passed());
                CHECK(o.check.positions > 60);
                if (context < 64) CHECK(o.check.after_shift > 0);
            }
        }
    }
}

TEST_CASE("session: interleaved rotary pairs shift as well") {
    llama::Llama model{RandomWeights{6}(tiny_config(llama::Pairing::interleaved))};
    for (const char* layout : {"standard", "permuted"}) {
        const auto memory = llama::make_memory(model.config(), {.context = 24, .batch = 8}, {.layout = layout});
        const SessionOutcome o = run_session(model, *memory, 10, 100);
        CHECK(o.check.passed());
        CHECK(o.shifts > 5);
    }
}

TEST_CASE("session: a model may have layers of one kind only") {
    using enum llama::LayerKind;
    for (const llama::LayerKind kind : {sliding_attention, full_attention}) {
        llama::Config config = tiny_config();
        config.layer_types.assign(2, kind);
        llama::Llama model{RandomWeights{8}(config)};
        const auto memory = llama::make_memory(config, {.context = 24, .batch = 8});
        const SessionOutcome o = run_session(model, *memory, 10, 100);
        CHECK(o.check.passed());
        CHECK((memory->use().sliding.layers == 0) == (kind == full_attention));
        CHECK((memory->use().full.layers == 0) == (kind == sliding_attention));
        CHECK((memory->use().evicted > 0) == (kind == sliding_attention));
    }
}

TEST_CASE("session: the check finds faulty windows and shifts") {
    const llama::Config right = tiny_config();
    llama::Config narrow = right;
    llama::Config wide = right;
    --narrow.sliding_window;
    ++wide.sliding_window;
    CHECK(check_with<Rope>(right).passed());
    CHECK_FALSE(check_with<Rope>(narrow).passed());
    CHECK_FALSE(check_with<Rope>(wide).passed());
    CHECK_FALSE(check_with<RotatesBack>(right).passed());
    CHECK_FALSE(check_with<RotatesNothing>(right).passed());
    CHECK_FALSE(check_with<RotatesTooFar>(right).passed());
}

TEST_CASE("session: the text does not depend on the layout, across shifts") {
    const llama::TextLimits limits{.context = 24, .batch = 8};
    const auto standard = llama::make_memory(tiny().config(), limits, {.layout = "standard"});
    const auto permuted = llama::make_memory(tiny().config(), limits, {.layout = "permuted"});
    const SessionOutcome a = run_session(tiny(), *standard, 10, 150);
    const SessionOutcome b = run_session(tiny(), *permuted, 10, 150);
    CHECK(a.shifts > 10);
    CHECK(a.text == b.text);
}

TEST_CASE("memory: use and evictions are counted") {
    const auto memory = llama::make_memory(tiny().config(), {.context = 16, .batch = 8}, {.element = "half"});
    llama::Session session{tiny(), *memory};
    const std::vector<int> tokens(16, 1);
    session.feed(tokens);
    llama::MemoryUse use = memory->use();
    CHECK(use.sliding.layers == 2);
    CHECK(use.full.layers == 1);
    CHECK(use.sliding.cells_used == 5);
    CHECK(use.sliding.cells == 5 + 8);
    CHECK(use.full.cells_used == 16);
    CHECK(use.full.cells == 16);
    CHECK(use.full.bytes == 16 * 2 * 2 * 6 * 2); // cells, keys and values, heads, elements, bytes
    CHECK(use.sliding.bytes == 2 * 13 * 2 * 2 * 6 * 2);
    CHECK(use.evicted == 11);
    session.feed(std::vector<int>{1}); // removes positions 4 to 9, which the window has left already
    use = memory->use();
    CHECK(session.shifts() == 1);
    CHECK(use.full.cells_used == 11);
    CHECK(use.sliding.cells_used == 5);
    CHECK(use.evicted == 12);
}

TEST_CASE("memory: a refused operation changes no member, and the rollback keeps its states") {
    for (const llama::Config& config : {tiny_hybrid_config(), tiny_shakespeare_hybrid_config()}) {
        const llama::TextLimits limits{.context = 16, .batch = 8, .rollback = 3};
        const auto memory = llama::make_memory(config, limits, {.element = "half"});
        CHECK(memory->use().recurrent.layers == config.layers(llama::LayerKind::recurrent));
        CHECK(memory->use().recurrent.cells == 2 * 4); // twice the kept ones, because a pass writes new ones
        CHECK(memory->use().recurrent.cells_used == 0);
        CHECK(memory->use().sliding.cells == 5 + 3 + 8);
        llama::Llama model{RandomWeights{9}(config)};
        llama::Session session{model, *memory};
        session.feed(std::vector<int>(16, 1));
        CHECK(memory->use().recurrent.cells_used == 4);
        CHECK(memory->use().full.cells_used == 16);
        CHECK(memory->remove(2, 4).error() == cellar::Reason::cannot_cut);
        CHECK(memory->remove(12, 16).error() == cellar::Reason::cannot_rewind);
        CHECK(memory->begin(16, 1).error() == cellar::Reason::full);
        CHECK(memory->begin(16, 9).error() == cellar::Reason::batch_too_long);
        CHECK(memory->use().recurrent.cells_used == 4);
        CHECK(memory->use().sliding.cells_used == 8);
        CHECK(memory->use().full.cells_used == 16);
        CHECK(memory->use().evicted == 8);
        CHECK(memory->remove(13, 16).has_value());
        CHECK(memory->begin(14, 1).error() == cellar::Reason::not_next);
        CHECK(memory->use().recurrent.cells_used == 1);
        CHECK(memory->use().sliding.cells_used == 5);
        CHECK(memory->use().full.cells_used == 13);
    }
}

TEST_CASE("memory: both caches take a batch, or neither does") {
    const auto memory = llama::make_memory(tiny().config(), {.context = 16, .batch = 32});
    const auto refused = memory->begin(0, 20); // the sliding cache has 5 + 32 cells, the full one 16
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error() == cellar::Reason::full);
    CHECK(memory->begin(0, 33).error() == cellar::Reason::batch_too_long);
    CHECK(memory->use().sliding.cells_used == 0);
    CHECK(memory->begin(0, 16).has_value());
}

} // namespace test_session
