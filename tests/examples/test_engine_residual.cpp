// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The engine with the newest tokens of each text in half, and the others in fewer bits.
#include "commands.hpp"
#include "engine/drafts.hpp"
#include "engine/engine.hpp"
#include "engine/vocabulary.hpp"
#include "engine/writer.hpp"
#include "engine_bytes.hpp"
#include "engine_texts.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace test_engine_residual {

namespace {

using llama::Matrix;
using Text = std::vector<int>;

constexpr int context = 128, residual = 16, drafted = 4;

/// Heads of 64 values, which a rotation takes.
engine::Model loaded(RandomModel random) {
    random.head_dim = 64;
    return {written(random), 1};
}

engine::MemoryOptions options(const std::string& format, int exact = residual) {
    return {.limits = {.texts = 3, .context = context, .cells = 2 * context, .batch = 64, .snapshots = 8},
            .format = format,
            .residual = exact};
}

class Run {
public:
    Run(const engine::Model& model, const engine::MemoryOptions& options) : engine_{model, options} {}

    engine::Memory& memory() { return engine_.memory(); }
    Matrix logits(int text, const Text& of, int begin, int end) {
        const std::vector<llama::NewTokens> batch{part(text, of, begin, end)};
        cellar::Refusal refusal;
        const Matrix* const found = engine_.run(batch, refusal, engine::all_tokens);
        REQUIRE(found != nullptr);
        CHECK(memory().audit().empty());
        return *found;
    }

private:
    engine::Engine engine_;
};

/// The root of the mean square of what logits differ by, over a prompt, single tokens and a shift.
double distance(const engine::Model& model, const engine::MemoryOptions& a, const engine::MemoryOptions& b) {
    Run one{model, a};
    Run two{model, b};
    const Text text = text_of(100, 1);
    double squares = 0;
    double count = 0;
    const auto compare = [&](int begin, int end) {
        const Matrix differences = one.logits(0, text, begin, end) - two.logits(0, text, begin, end);
        squares += differences.cast<double>().squaredNorm();
        count += static_cast<double>(differences.size());
    };
    compare(0, 50);
    compare(50, 60);
    for (Run* const run : {&one, &two}) REQUIRE(run->memory().remove(0, 4, 30));
    for (int i = 60; i < 70; ++i) compare(i, i + 1);
    return std::sqrt(squares / count);
}

} // namespace

TEST_CASE("engine: with a residual, logits are nearer to those in half") {
    engine::print_errors_only();
    for (const std::string architecture : {"llama", "gemma3"}) {
        CAPTURE(architecture);
        const engine::Model model = loaded(random_model(architecture));
        const double without = distance(model, options("half", 0), options("iq4_nl", 0));
        const double with = distance(model, options("half", 0), options("iq4_nl"));
        CHECK(with > 0);
        CHECK(with < 0.8 * without);
    }
}

TEST_CASE("engine: where a residual has all tokens, logits are those in half") {
    engine::print_errors_only();
    const engine::Model model = loaded(random_model("llama"));
    Run half{model, options("half", 0)};
    Run all{model, options("iq4_nl", 50)};
    const Text text = text_of(50, 1);
    CHECK((half.logits(0, text, 0, 40) - all.logits(0, text, 0, 40)).cwiseAbs().maxCoeff() < 1e-3F);
    for (int i = 40; i < 50; ++i)
        CHECK((half.logits(0, text, i, i + 1) - all.logits(0, text, i, i + 1)).cwiseAbs().maxCoeff() < 1e-3F);
}

TEST_CASE("engine: with a residual, a saved text and one that shares a prefix go on with the same bits") {
    engine::print_errors_only();
    const Scratch folder;
    for (const std::string architecture : {"llama", "gemma3"}) {
        CAPTURE(architecture);
        const engine::Model model = loaded(random_model(architecture));
        const Text text = text_of(60, 1);
        Run before{model, options("iq4_nl")};
        static_cast<void>(before.logits(0, text, 0, 40));
        before.memory().save(folder.path("text"), 0, {.model = architecture});
        before.memory().keep(0, std::span{text}.first(40));
        Run after{model, options("iq4_nl")};
        after.memory().load(folder.path("text"), 2, {.model = architecture});
        REQUIRE(after.memory().length(2) == 40);
        REQUIRE(before.memory().attach(1, text) == 40);
        for (int i = 40; i < 60; ++i) {
            const Matrix expected = before.logits(0, text, i, i + 1);
            CHECK(after.logits(2, text, i, i + 1) == expected);
            CHECK(before.logits(1, text, i, i + 1) == expected);
        }
        Run without{model, options("iq4_nl", 0)};
        CHECK_THROWS(without.memory().load(folder.path("text"), 2, {.model = architecture}));
    }
}

TEST_CASE(
    "engine: a text with a residual goes back a few tokens, and a removal that its window would miss is refused") {
    engine::print_errors_only();
    const engine::Model model = loaded(random_model("llama"));
    engine::MemoryOptions with_rollback = options("iq4_nl");
    with_rollback.rollback = drafted;
    Run run{model, with_rollback};
    const Text text = text_of(60, 1);
    static_cast<void>(run.logits(0, text, 0, 60));
    CHECK(run.memory().remove(0, 4, 58).error() == cellar::Reason::cannot_resume);
    CHECK(run.memory().length(0) == 60);
    REQUIRE(run.memory().remove(0, 60 - drafted, 60));
    CHECK(run.memory().length(0) == 60 - drafted);
    CHECK(run.memory().audit().empty());
}

TEST_CASE("engine: with a residual, drafts change nothing in what is written") {
    engine::print_errors_only();
    const engine::Model model = loaded(random_model("llama"));
    engine::MemoryOptions memory = options("iq4_nl");
    memory.limits.context = memory.limits.cells = 96;
    memory.rollback = drafted;
    const auto write = [&](llama::TextModel& words, llama::Texts& texts) {
        engine::Writer writer{words, texts, 0, {.seed = 7}};
        Text tokens = text_of(30, 1);
        const engine::Written written = writer.write(tokens, 100, [](int) { return true; });
        CHECK(written.shifts > 0);
        return tokens;
    };
    engine::Engine plain{model, memory};
    Bytes plain_words{plain};
    const Text expected = write(plain_words, plain.memory());
    engine::Engine engine{model, memory};
    engine::Engine guesser{model, memory};
    Bytes words{engine};
    engine::Drafts drafts{words, engine, guesser, drafted};
    CHECK(write(drafts, drafts) == expected);
    CHECK(drafts.counts().accepted > 0);
    CHECK(engine.memory().audit().empty());
}

TEST_CASE("engine: a residual counts in the bytes, and a budget has room for it") {
    engine::print_errors_only();
    const engine::Model model = loaded(random_model("llama"));
    const engine::MemoryOptions without = options("iq4_nl", 0);
    engine::MemoryOptions with = options("iq4_nl");
    const std::int64_t bytes = engine::memory_bytes(model.shape(), with);
    CHECK(bytes > engine::memory_bytes(model.shape(), without));
    Run run{model, with};
    CHECK(run.memory().bytes() > Run{model, without}.memory().bytes());
    CHECK(run.memory().use().cells == 2 * context); // of the cache that has all tokens
    with.limits.cells = engine::cells_for_bytes(model.shape(), with, bytes);
    CHECK(engine::memory_bytes(model.shape(), with) <= bytes);
    CHECK(with.limits.cells >= 2 * context);
}

TEST_CASE("engine: what has no residual says so") {
    engine::print_errors_only();
    const engine::Model model = loaded(random_model("llama"));
    CHECK_THROWS_WITH((Run{model, options("half")}),
                      "the format of keys and values with a residual is 'half', expected one of 'iq4_nl'");
    engine::MemoryOptions flash = options("q8_0");
    flash.way = engine::Way::flash;
    CHECK_THROWS_WITH((Run{model, flash}),
                      "ggml's attention takes keys and values from one cache, expected the attention 'attend' with a "
                      "residual");
    const engine::Model narrow{written(random_model("llama")), 1}; // heads of 32
    CHECK_THROWS_WITH((Run{narrow, options("iq4_nl")}),
                      "the format 'iq4_nl' takes heads of a multiple of 64 values, but they have 32");
}

} // namespace test_engine_residual
