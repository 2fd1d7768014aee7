// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The engine beside libllama: models of random weights, and the real one of scripts/engine if it is there.
#include "commands.hpp"
#include "engine/engine.hpp"
#include "engine/libllama.hpp"
#include "engine/text_model.hpp"
#include "engine/vocabulary.hpp"
#include "engine/writer.hpp"
#include "engine_texts.hpp"
#include "paths.hpp"
#include "random_gguf.hpp"
#include "skip.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace test_engine {

namespace {

using engine::Way;
using llama::Matrix;
using Text = std::vector<int>;

constexpr int context = 256;

/// The same batches through both.
class Pair {
public:
    Pair(const std::string& path, Way way, const std::string& format, int threads = 1)
        : model_{path, threads},
          engine_{model_,
                  {.limits = {.texts = 4, .context = context, .cells = context, .batch = 64},
                   .format = format,
                   .way = way}},
          // Its flash attention converts floats to half.
          libllama_{path,
                    {.threads = threads,
                     .texts = 4,
                     .cells = context,
                     .batch = 64,
                     .keys = format == "half" ? GGML_TYPE_F16 : GGML_TYPE_F32,
                     .values = format == "half" ? GGML_TYPE_F16 : GGML_TYPE_F32,
                     .flash = format == "half"}} {}

    engine::Memory& memory() { return engine_.memory(); }
    engine::Libllama& libllama() { return libllama_; }

    Matrix ours(const std::vector<llama::NewTokens>& batch) {
        cellar::Refusal refusal;
        const Matrix* const logits = engine_.run(batch, refusal, engine::all_tokens);
        REQUIRE(logits != nullptr);
        CHECK(engine_.memory().audit().empty());
        return *logits;
    }

    /// The largest difference of all tokens' logits.
    float difference(const std::vector<llama::NewTokens>& batch) {
        const Matrix own = ours(batch);
        const Matrix& other = libllama_.run(batch, true);
        REQUIRE(own.rows() == other.rows());
        REQUIRE(own.allFinite());
        CHECK(own.cwiseAbs().maxCoeff() > 0.1F);
        return (own - other).cwiseAbs().maxCoeff();
    }

private:
    engine::Model model_;
    engine::Engine engine_;
    engine::Libllama libllama_;
};

/// The largest difference over a prompt, single tokens, a second text that shares the prompt, both in one batch, one of
/// them removed, and a new one in its place.
float difference_of_many_passes(Pair& pair) {
    const Text one = text_of(60, 1);
    Text two = text_of(60, 2);
    std::copy_n(one.begin(), 30, two.begin());
    const Text three = text_of(50, 3);
    float most = 0;
    const auto compare = [&](const std::vector<llama::NewTokens>& batch) {
        most = std::max(most, pair.difference(batch));
    };
    compare({part(0, one, 0, 30)});
    pair.memory().keep(0, std::span{one}.first(30));
    pair.libllama().copy_prefix(0, 1, 30); // now, because a state in libllama has no past
    for (int i = 30; i < 40; ++i) compare({part(0, one, i, i + 1)});
    REQUIRE(pair.memory().attach(1, two) == 30);
    compare({part(1, two, 30, 41), part(0, one, 40, 41)});
    for (int i = 41; i < 50; ++i) compare({part(0, one, i, i + 1), part(1, two, i, i + 1)});
    compare({part(2, three, 0, 20), part(1, two, 50, 51), part(0, one, 50, 53)});
    for (int i = 20; i < 30; ++i) compare({part(2, three, i, i + 1)});
    return most;
}

const char* const attention_alone[] = {"llama", "qwen2", "qwen3", "gemma3"};
const char* const all[] = {"llama", "qwen2", "qwen3", "gemma3", "lfm2"};

} // namespace

TEST_CASE("engine: with ggml's attention, every logit of a model without recurrent layers has the bits of libllama's") {
    engine::print_errors_only();
    for (const std::string architecture : attention_alone) {
        CAPTURE(architecture);
        for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
            CAPTURE(ggml_type_name(type));
            Pair pair{written(random_model(architecture, type)), Way::flash, "half"};
            CHECK(difference_of_many_passes(pair) == 0);
        }
    }
}

TEST_CASE("engine: with float weights, every logit of every architecture is near libllama's") {
    engine::print_errors_only();
    for (const std::string architecture : all) {
        CAPTURE(architecture);
        // ggml looks GELU up in a table of half: a last bit may become a step of it.
        const float bound = architecture == "gemma3" ? 1e-3F : 1e-4F;
        for (const Way way : {Way::attend, Way::flash}) {
            Pair pair{written(random_model(architecture)), way, "float"};
            CHECK(difference_of_many_passes(pair) < bound);
        }
    }
}

TEST_CASE("engine: attend gives the same bits with any number of threads") {
    engine::print_errors_only();
    const Text text = text_of(50, 1);
    const std::string path = written(random_model("llama"));
    Pair one{path, Way::attend, "half", 1};
    Pair three{path, Way::attend, "half", 3};
    const Matrix at_once = one.ours({part(0, text, 0, 50)});
    CHECK(three.ours({part(0, text, 0, 50)}) == at_once);
}

TEST_CASE("engine: a saved text goes on as it would have, in the bits of libllama") {
    engine::print_errors_only();
    const Scratch folder;
    const std::string file = folder.path("text");
    for (const std::string architecture : all) {
        CAPTURE(architecture);
        const std::string path = written(random_model(architecture, GGML_TYPE_Q8_0));
        const Text text = text_of(60, 1);
        Pair before{path, Way::flash, "half"};
        CHECK(before.difference({part(0, text, 0, 40)}) == 0);
        before.memory().save(file, 0, {.model = architecture});
        Pair after{path, Way::flash, "half"};
        after.memory().load(file, 2, {.model = architecture});
        CHECK(after.memory().length(2) == 40);
        for (int i = 40; i < 60; ++i) {
            const Matrix own = after.ours({part(2, text, i, i + 1)});
            CHECK(own == before.libllama().run(std::vector{part(0, text, i, i + 1)}, true));
        }
    }
}

TEST_CASE("engine: a refused batch, and one that cannot be computed, change nothing") {
    engine::print_errors_only();
    const std::string path = written(random_model("llama"));
    const engine::Model loaded{path, 1};
    for (const Way way : {Way::attend, Way::flash}) {
        engine::Engine engine{loaded,
                              {.limits = {.texts = 2, .context = context, .cells = 256, .batch = 200}, .way = way}};
        const Text text = text_of(200, 1);
        cellar::Refusal refusal;
        const std::vector first{part(0, text, 0, 200)};
        REQUIRE(engine.run(first, refusal) != nullptr);
        const std::vector second{part(1, text, 0, 100)};
        CHECK(engine.run(second, refusal) == nullptr);
        CHECK(refusal == cellar::Reason::full);
        CHECK(engine.memory().length(1) == 0);
        CHECK(engine.memory().audit().empty());
        const Text wrong{1, 160};
        const std::vector third{part(1, wrong, 0, 2)};
        CHECK_THROWS_WITH(engine.run(third, refusal), "token 160, expected 0 to 159");
        CHECK(engine.memory().length(1) == 0);
    }
}

TEST_CASE("engine: a text that outgrows the context loses its older half, and stays near libllama's") {
    engine::print_errors_only();
    for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
        CAPTURE(architecture);
        Pair pair{written(random_model(architecture)), Way::attend, "float"};
        const Text text = text_of(80, 1);
        CHECK(pair.difference({part(0, text, 0, 60)}) < 1e-4F);
        REQUIRE(pair.memory().remove(0, 4, 30));
        pair.libllama().remove(0, 4, 30);
        CHECK(pair.memory().length(0) == 34);
        for (int i = 60; i < 80; ++i) CHECK(pair.difference({part(0, text, i, i + 1)}) < 1e-3F);
    }
}

TEST_CASE("engine: the real model answers, with the bits of libllama") {
    engine::print_errors_only();
    const std::string path = cellar_test::source_dir() + "/.models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) CELLAR_SKIP("there is no ", path, ", which scripts/engine gets");
    const engine::Vocabulary vocabulary{path};
    const std::vector<engine::Message> question{{"user", "What is the capital of France?"}};
    const auto prompt = vocabulary.chat(question);
    REQUIRE(prompt);
    for (const Way way : {Way::flash, Way::attend}) {
        Pair pair{path, way, "half", 2};
        const Text tokens = vocabulary.tokens(*prompt, true, true);
        if (way == Way::flash) CHECK(pair.difference({{0, tokens}}) == 0);
        const engine::Model loaded{path, 2};
        engine::Engine engine{loaded, {.limits = {.texts = 1, .context = context, .batch = 64}, .way = way}};
        engine::EngineText words{engine, vocabulary};
        engine::Writer writer{words, engine.memory(), 0, {}};
        std::string answer;
        Text text = tokens;
        static_cast<void>(writer.write(text, 24, [&](int token) {
            answer += vocabulary.text(token);
            return !vocabulary.ends(token);
        }));
        CHECK_MESSAGE(answer.find("Paris") != std::string::npos, answer);
    }
}

} // namespace test_engine
