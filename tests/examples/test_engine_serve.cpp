// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The scheduler of `serve` over the engine: conversations that outgrow the context.
#include "commands.hpp"
#include "engine/engine.hpp"
#include "engine_bytes.hpp"
#include "random_gguf.hpp"
#include "serve/server.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace test_engine_serve {

TEST_CASE("engine: conversations that outgrow the context lose their older halves, and are written whole") {
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    write_gguf(path, random_model("llama"));
    const engine::Model loaded{path, 1};
    const std::string system = "a system prompt that users share";
    const std::vector<serve::User> users{
        {.at = 0, .seed = 1, .system = system, .turns = {{0, "hello", 40}, {2, "and then?", 30}}},
        {.at = 3, .seed = 2, .system = system, .turns = {{0, "good day", 50}}},
        {.at = 5, .seed = 3, .system = system, .turns = {{0, "short", 4}}}};
    for (const int cells : {192, 64}) { // with and without preemptions
        CAPTURE(cells);
        engine::Engine engine{loaded,
                              {.limits = {.texts = 3, .context = 64, .cells = cells, .batch = 16, .snapshots = 8}}};
        Bytes model_of_bytes{engine};
        serve::Server server{model_of_bytes, engine.memory(), users, {.sinks = 4}};
        const serve::Outcome o = server.run();
        CHECK(o.audit.empty());
        CHECK(o.shifts > 0);
        CHECK(o.replies == 4);
        CHECK(o.texts[0].size() == system.size() + 5 + 40 + 9 + 30);
        CHECK(o.texts[1].size() == system.size() + 8 + 50);
        CHECK(o.texts[2].size() == system.size() + 5 + 4);
        for (const std::string& text : o.texts) CHECK(text.starts_with(system));
        CHECK(o.texts[0].find("hello") == system.size());
        CHECK(o.texts[0].find("and then?") == system.size() + 5 + 40);
        CHECK(engine.memory().use().live == 0);
    }
    engine::Engine engine{loaded, {.limits = {.texts = 3, .context = 64, .cells = 192, .batch = 16}}};
    Bytes model_of_bytes{engine};
    CHECK_THROWS_WITH((serve::Server{model_of_bytes, engine.memory(), users, {}}),
                      "user 1 needs 116 tokens, expected at most 64, the context or the cells");
}

} // namespace test_engine_serve
