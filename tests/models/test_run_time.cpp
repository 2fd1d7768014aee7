// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/models.md about models that are known at run time only.
#include "configs.hpp"
#include <cellar/cellar.hpp>
#include <cellar/models/config.hpp>
#include <cellar/models/make_memory.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <iostream>
#include <string>

namespace test_run_time {

namespace {

using Layout = cellar::StandardV<cellar::bf16>;
using Rotated = cellar::RopeShift<cellar::RunTimePairing>;
using Full = cellar::Cache<Layout, cellar::FullCausal, Rotated>;
using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Rotated>;
using Memory = cellar::Hybrid<cellar::RunTimePattern, Full, Sliding>;

std::int64_t load(const std::string& text, std::int64_t budget) {
    // [use]
    namespace models = cellar::models;
    const auto model = models::from_config(nlohmann::json::parse(text));
    if (!model) {
        std::cerr << model.error().message << '\n';
        return 1;
    }
    const models::MemoryLimits limits{.attention = {.sequences = 4, .capacity = 4096, .batch = 512}};
    const auto bytes = models::bytes<Memory>(*model, limits); // before anything is allocated
    if (!bytes || bytes->total() > budget) return 1;
    auto memory = models::make_memory<Memory>(*model, limits);
    // [/use]
    CHECK(memory->bytes() == bytes->data);
    return 0;
}

} // namespace

TEST_CASE("a memory is made from the text of a config.json") {
    CHECK(load(config_of("Gemma 3 1B").at("file").dump(), std::int64_t{1} << 40) == 0);
    CHECK(load(config_of("Gemma 3 1B").at("file").dump(), 1000) == 1);
    CHECK(load(R"({"model_type": "tomorrow"})", std::int64_t{1} << 40) == 1);
}

TEST_CASE("a model that is not known is described by hand") {
    // [recipe]
    namespace models = cellar::models;
    models::RunTimeDescription model{.architecture = "mine", .trained_context = 4096};
    for (int i = 0; i < 24; ++i) {
        models::LayerDescription layer;
        layer.shape = {.kv_heads = 8, .key_dim = 128, .value_dim = 128};
        layer.rope.pairing = models::Pairing::neox;
        layer.rope.dims = 128;
        if (i % 4 != 3) { // three of four layers see a window
            layer.kind = models::LayerKind::sliding;
            layer.window = 1024;
        }
        model.layers.push_back(layer);
    }
    const auto checked = models::check(model);
    if (!checked) std::cerr << checked.error().message << '\n';
    // [/recipe]
    CHECK(checked);
    const auto memory = models::make_memory<Memory>(model, {.attention = {.capacity = 16}});
    REQUIRE(memory);
    CHECK(memory->member<Sliding>().layers() == 18);
}

} // namespace test_run_time
