// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A second model guesses tokens: what is written is the same.
#include "commands.hpp"
#include "engine/drafts.hpp"
#include "engine/vocabulary.hpp"
#include "engine/writer.hpp"
#include "engine_bytes.hpp"
#include "random_gguf.hpp"
#include "serve/server.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace test_engine_drafts {

namespace {

constexpr int guessed_at_a_time = 4;

llama::PoolLimits limits(int texts, int context) {
    return {.texts = texts, .context = context, .cells = texts * context, .batch = 24, .snapshots = 8};
}

engine::Model loaded(const Scratch& folder, const RandomModel& random) {
    const std::string path =
        folder.path(random.architecture + ggml_type_name(random.type) + std::to_string(random.seed));
    write_gguf(path, random);
    return {path, 1};
}

/// An engine alone, or with drafts.
class Writing {
public:
    Writing(const engine::Model& model, const engine::Model* smaller, const llama::PoolLimits& limits)
        : engine_{model, {.limits = limits, .rollback = guessed_at_a_time}}, words_{engine_} {
        if (smaller == nullptr) return;
        guesser_ = std::make_unique<engine::Engine>(
            *smaller, engine::MemoryOptions{.limits = limits, .rollback = guessed_at_a_time});
        drafts_ = std::make_unique<engine::Drafts>(words_, engine_, *guesser_, guessed_at_a_time);
    }

    llama::TextModel& model() {
        if (drafts_) return *drafts_;
        return words_;
    }
    llama::Texts& memory() {
        if (drafts_) return *drafts_;
        return engine_.memory();
    }
    engine::DraftCounts counts() const { return drafts_->counts(); }

    /// Writes on, and returns all tokens.
    std::vector<int> write(std::vector<int> tokens, int count, double temperature = 0) {
        engine::Writer writer{model(), memory(), 0, {.seed = 7, .temperature = temperature}};
        shifts = writer.write(tokens, count, [](int) { return true; }).shifts;
        expect_audited();
        return tokens;
    }

    void expect_audited() const {
        CHECK(engine_.memory().audit().empty());
        if (guesser_) CHECK(guesser_->memory().audit().empty());
    }

    int shifts = 0;

private:
    engine::Engine engine_;
    Bytes words_;
    std::unique_ptr<engine::Engine> guesser_;
    std::unique_ptr<engine::Drafts> drafts_;
};

std::vector<int> prompt(int length) {
    std::vector<int> tokens;
    for (int i = 0; i < length; ++i) tokens.push_back((i * 37 + 5) % 160);
    return tokens;
}

RandomModel other_than(RandomModel model) {
    model.seed = 2;
    return model;
}

} // namespace

TEST_CASE("engine: with drafts of any model, every architecture writes the tokens that it writes without") {
    engine::print_errors_only();
    const Scratch folder;
    const engine::Model llama_of_halves = loaded(folder, random_model("llama", GGML_TYPE_F16));
    for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma3", "lfm2"}) {
        CAPTURE(architecture);
        const engine::Model model = loaded(folder, random_model(architecture));
        const engine::Model rounded = loaded(folder, random_model(architecture, GGML_TYPE_Q8_0));
        const engine::Model other = loaded(folder, other_than(random_model(architecture)));
        const int context = architecture == "lfm2" ? 160 : 64; // a state cannot lose tokens from its middle
        Writing plain{model, nullptr, limits(1, context)};
        const std::vector<int> expected = plain.write(prompt(30), 100);
        CHECK((plain.shifts > 0) == (architecture != "lfm2"));
        std::vector<engine::DraftCounts> counts;
        for (const engine::Model* const smaller : {&model, &rounded, &other, &llama_of_halves}) {
            Writing with_drafts{model, smaller, limits(1, context)};
            CHECK(with_drafts.write(prompt(30), 100) == expected);
            CHECK(with_drafts.shifts == plain.shifts);
            CHECK(with_drafts.memory().length(0) == plain.memory().length(0));
            counts.push_back(with_drafts.counts());
            CHECK(counts.back().guessed > 0);
        }
        CHECK(counts[0].accepted >= 70); // its own guesses are right
        CHECK(counts[1].accepted > counts[2].accepted);
        CHECK(counts[2].accepted < counts[2].guessed);
    }
}

TEST_CASE("engine: with drafts, tokens are drawn as without") {
    engine::print_errors_only();
    const Scratch folder;
    const engine::Model model = loaded(folder, random_model("llama"));
    const engine::Model rounded = loaded(folder, random_model("llama", GGML_TYPE_Q4_0));
    Writing plain{model, nullptr, limits(1, 64)};
    Writing with_drafts{model, &rounded, limits(1, 64)};
    CHECK(with_drafts.write(prompt(9), 80, 0.7) == plain.write(prompt(9), 80, 0.7));
    CHECK(with_drafts.counts().accepted > 0);
    CHECK(with_drafts.counts().accepted < with_drafts.counts().guessed);
}

TEST_CASE("engine: with drafts, users are served the texts that they get without") {
    engine::print_errors_only();
    const Scratch folder;
    const std::string system = "a system prompt that users share";
    const std::vector<serve::User> users{
        {.at = 0, .seed = 1, .system = system, .turns = {{0, "hello", 40}, {2, "and then?", 30}}},
        {.at = 3, .seed = 2, .system = system, .turns = {{0, "good day", 50}}},
        {.at = 5, .seed = 3, .system = system, .turns = {{0, "short", 4}}}};
    for (const std::string architecture : {"llama", "gemma3", "lfm2"}) {
        CAPTURE(architecture);
        const engine::Model model = loaded(folder, random_model(architecture));
        const engine::Model rounded = loaded(folder, random_model(architecture, GGML_TYPE_Q8_0));
        llama::PoolLimits own = limits(3, 160);
        own.cells = 192; // with preemptions
        const auto serve = [&](Writing& writing) {
            serve::Server server{writing.model(), writing.memory(), users, {.temperature = 0}};
            serve::Outcome outcome = server.run();
            CHECK(outcome.audit.empty());
            writing.expect_audited();
            return outcome;
        };
        Writing plain{model, nullptr, own};
        Writing with_drafts{model, &rounded, own};
        const serve::Outcome expected = serve(plain);
        const serve::Outcome found = serve(with_drafts);
        CHECK(found.texts == expected.texts);
        CHECK(with_drafts.counts().accepted > 20);
        CHECK(with_drafts.memory().use().live == 0);
    }
}

TEST_CASE("engine: with drafts, a saved text goes on, and a batch that is refused changes nothing") {
    engine::print_errors_only();
    const Scratch folder;
    const std::string file = folder.path("text");
    const engine::Model model = loaded(folder, random_model("llama"));
    Writing plain{model, nullptr, limits(1, 128)};
    Writing first{model, &model, limits(1, 128)};
    const std::vector<int> expected = plain.write(prompt(20), 60);
    const std::vector<int> begun = first.write(prompt(20), 21);
    first.memory().save(file, 0, {});
    Writing second{model, &model, limits(1, 128)};
    second.memory().load(file, 0, {});
    CHECK(second.memory().length(0) == 40); // the last token is not in the memory
    CHECK(second.write(begun, 39) == expected);

    llama::PoolLimits small = limits(2, 64);
    small.cells = 64;
    Writing full{model, &model, small};
    const std::vector<int> other = prompt(20);
    cellar::Refusal refusal;
    const llama::NewTokens of_other{1, other};
    REQUIRE(full.model().run({&of_other, 1}, refusal) != nullptr);
    std::vector<int> token = prompt(1);
    while (true) {
        const llama::NewTokens next{0, token};
        const llama::Matrix* const logits = full.model().run({&next, 1}, refusal);
        if (logits == nullptr) break;
        Eigen::Index best = 0;
        logits->row(0).maxCoeff(&best);
        token = {static_cast<int>(best)};
    }
    CHECK(refusal == cellar::Reason::full);
    CHECK(full.memory().length(0) == 44);
    CHECK(full.memory().length(1) == 20);
    full.expect_audited();
}

TEST_CASE("engine: a model with other tokens cannot make drafts") {
    engine::print_errors_only();
    const Scratch folder;
    RandomModel larger = random_model("llama", GGML_TYPE_F16);
    larger.vocabulary = 192;
    const engine::Model model = loaded(folder, random_model("llama"));
    const engine::Model other = loaded(folder, larger);
    CHECK_THROWS_WITH((Writing{model, &other, limits(1, 64)}),
                      "the model of drafts has 192 tokens, expected the 160 of the model");
}

} // namespace test_engine_drafts
