// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// `serve`: its scheduler, and the whole program.
#include "commands.hpp"
#include "generate/huggingface.hpp"
#include "generate/safetensors.hpp"
#include "paths.hpp"
#include "serve/outcome.hpp"
#include "serve/picture.hpp"
#include "serve/server.hpp"
#include "serve/trace.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace test_serve {

namespace {

const std::string recorded = cellar_test::source_dir() + "/tests/examples/serve_trace.jsonl";

serve::Trace small_trace() {
    return serve::random_trace({.seed = 3, .users = 12, .systems = 2, .interval = 2, .turns = 2, .reply = 16});
}

class Machine {
public:
    explicit Machine(const std::string& file)
        : llama_{llama::read_weights(llama::Safetensors::read(file)), llama::Products::row_by_row} {}

    /// Serves a trace in a pool of its own, of `cells` cells.
    serve::Outcome serve(const serve::Trace& trace, int cells, int texts, bool tree, std::int64_t host_bytes = 0) {
        const auto pool = llama::make_pool(llama_.config(),
                                           {.texts = texts,
                                            .context = 256,
                                            .cells = cells,
                                            .batch = 32,
                                            .snapshots = 12,
                                            .prefixes = {.offloaded_bytes = host_bytes}},
                                           "float");
        serve::ServerOptions options{.tree = tree};
        options.watch = [&](const serve::State& state) {
            CHECK(state.running <= texts);
            CHECK(pool->audit().empty());
        };
        llama::ByteModel bytes{llama_, *pool};
        serve::Outcome outcome = serve::Server{bytes, *pool, trace, options}.run();
        CHECK(pool->use().live == 0);
        return outcome;
    }

private:
    llama::Llama llama_;
};

/// Checks that every user was served.
void check_complete(const serve::Outcome& o, const serve::Trace& trace) {
    CHECK(o.audit.empty());
    std::size_t replies = 0;
    for (std::size_t i = 0; i < trace.size(); ++i) {
        CHECK(static_cast<int>(o.texts[i].size()) == trace[i].length());
        CHECK(o.texts[i].starts_with(trace[i].system + trace[i].turns[0].say));
        replies += trace[i].turns.size();
    }
    CHECK(o.replies == static_cast<std::int64_t>(replies));
    CHECK(o.first.steps.size() == replies);
    CHECK(o.whole.seconds.size() == replies);
    CHECK(o.samples.size() == static_cast<std::size_t>(o.passes));
}

void check_trace_refused(const std::string& line, const std::string& words) {
    const Scratch scratch;
    const std::string path = scratch.path("trace");
    std::ofstream{path} << content(recorded) << line << '\n';
    CAPTURE(line);
    check_refused(run(CELLAR_SERVE " --trace " + path), 1, path + ":7: " + words);
}

/// As the pages write it: with a comma before the last three digits.
std::string with_comma(std::int64_t number) {
    const std::string digits = std::to_string(number);
    return digits.size() <= 3 ? digits : std::string{digits}.insert(digits.size() - 3, ",");
}

/// A row of docs/chat-and-serve.md.
std::string row(const std::string& name, const std::vector<nlohmann::json>& runs, const char* count) {
    std::string text = "| " + name + " |";
    for (const nlohmann::json& run : runs) text += " " + with_comma(run.at(count)) + " |";
    return text + "\n";
}

} // namespace

TEST_CASE("serve: texts do not depend on the tree, the pool or the other requests") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        Machine machine{file};
        const serve::Trace trace = small_trace();
        const serve::Outcome tight = machine.serve(trace, 336, 4, true);
        check_complete(tight, trace);
        CHECK(tight.hit_rate() > 0.2);
        CHECK(tight.preemptions > 0);
        CHECK(tight.tree.evictions > 0);
        const serve::Outcome offloading = machine.serve(trace, 336, 4, true, 1 << 22);
        check_complete(offloading, trace);
        CHECK(offloading.tree.reloads > 0);
        CHECK(offloading.texts == tight.texts);
        CHECK(offloading.computed < tight.computed);
        const serve::Outcome plain = machine.serve(trace, 336, 4, false);
        check_complete(plain, trace);
        CHECK(plain.hit_rate() == 0);
        CHECK(plain.preemptions > 0);
        CHECK(plain.texts == tight.texts);
        CHECK(plain.computed > tight.computed);
        const serve::Outcome alone = machine.serve(trace, 256, 1, false);
        check_complete(alone, trace);
        CHECK(alone.preemptions == 0);
        CHECK(alone.texts == tight.texts);
        const serve::Outcome wide = machine.serve(trace, 4096, 12, true);
        check_complete(wide, trace);
        CHECK(wide.refusals == 0);
        CHECK(wide.texts == tight.texts);
        CHECK(wide.computed <= tight.computed);
    }
}

TEST_CASE("serve: a turn waits as long as the trace says, and idle steps are skipped") {
    Machine machine{hybrid_model};
    serve::Trace trace{{.at = 100, .seed = 1, .system = "ROMEO:\n", .turns = {{0, "Ay", 3}, {1000, "No", 2}}}};
    const serve::Outcome o = machine.serve(trace, 256, 1, true);
    check_complete(o, trace);
    // Pieces of 7, 1 and 1 tokens, of which the last gives the first byte; two more. Then 2 of 4 tokens are new.
    CHECK(o.first.steps == std::vector<int>{3, 2});
    CHECK(o.whole.steps == std::vector<int>{5, 3});
    CHECK(o.steps == 100 + 5 + 1000 + 3);
    CHECK(o.passes == 8);
    CHECK(o.samples.front().step == 100);
}

TEST_CASE("serve: a trace is read as it was written") {
    const serve::Trace trace = small_trace();
    CHECK(trace.size() == 12);
    const Scratch scratch;
    std::ostringstream text;
    serve::write_trace(text, trace);
    std::ofstream{scratch.path("trace")} << text.str();
    std::ostringstream again;
    serve::write_trace(again, serve::read_trace(scratch.path("trace")));
    CHECK(again.str() == text.str());
    for (const serve::User& user : trace) CHECK(user.length() <= 256);
}

TEST_CASE("serve: percentiles are values of the list") {
    CHECK(serve::percentile(std::vector<int>{}, 50) == 0);
    CHECK(serve::percentile(std::vector<int>{7}, 99) == 7);
    CHECK(serve::percentile(std::vector<int>{4, 1, 3, 2}, 50) == 2);
    CHECK(serve::percentile(std::vector<int>{4, 1, 3, 2}, 75) == 3);
    CHECK(serve::percentile(std::vector<int>{4, 1, 3, 2}, 76) == 4);
    CHECK(serve::percentile(std::vector<int>{4, 1, 3, 2}, 90) == 4);
}

TEST_CASE("serve: the drawing has a panel for each run, and axes") {
    serve::Outcome o{.steps = 400};
    for (int step = 0; step < 400; ++step) o.samples.push_back({step, {.cells = 100, .live = step / 8, .kept = 20}});
    std::ostringstream svg;
    serve::draw(svg, {{"first run", o}, {"second run", o}});
    for (const char* words :
         {"<svg xmlns=", ">first run: 400 steps<", ">second run: 400 steps<", ">cells<", ">step (one forward pass)<",
          ">running requests<", ">the tree alone<", ">free<", ">50<", ">300<", "</svg>\n"}) {
        CAPTURE(words);
        CHECK(svg.str().find(words) != std::string::npos);
    }
}

TEST_CASE("serve: a recorded trace with a tight pool") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        const Scratch scratch;
        const std::string flags = " --trace " + recorded + " --model " + file + " --cells 280 --sequences 4 --svg "
                                  + scratch.path("svg") + " --json " + scratch.path("json");
        const Outcome o = run(CELLAR_SERVE + flags);
        CAPTURE(o.error);
        REQUIRE(o.code == 0);
        CHECK(o.error.find("with the tree: step ") == 0);
        CHECK(o.error.ends_with(", 0 running, 0 waiting, 6 of 6 users finished\n"));
        CHECK(o.out.find(" seconds. The texts are equal.\n") != std::string::npos);
        CHECK(content(scratch.path("svg")).ends_with("</svg>\n"));
        const auto json = nlohmann::json::parse(content(scratch.path("json")));
        const auto& tree = json.at("with the tree");
        const auto& plain = json.at("without the tree");
        CHECK(tree.at("replies") == 8);
        CHECK(tree.at("hit_rate") > 0.2);
        CHECK(tree.at("tokens_computed") < plain.at("tokens_computed"));
        CHECK(tree.at("texts") == plain.at("texts"));
        CHECK(tree.at("preemptions") > 0);
        CHECK(tree.at("audit") == "");
        CHECK(tree.at("to_whole_reply").at("p99").at("steps") >= tree.at("to_first_byte").at("p50").at("steps"));
        const Outcome alone = run(CELLAR_SERVE + flags + " --no-compare");
        CHECK(alone.code == 0);
        CHECK(nlohmann::json::parse(content(scratch.path("json"))).size() == 1);
    }
}

TEST_CASE("serve: pages show what it draws and counts") {
    const Scratch scratch;
    const std::string flags = CELLAR_SERVE " --json " + scratch.path("json");
    const auto json = [&](const std::string& more) {
        REQUIRE(run(flags + more).code == 0);
        return nlohmann::json::parse(content(scratch.path("json")));
    };
    const nlohmann::json both = json(" --svg " + scratch.path("svg"));
    const nlohmann::json offloading = json(" --no-compare --host-bytes 100000000");
    const std::vector<nlohmann::json> runs{offloading.at("with the tree"), both.at("with the tree"),
                                           both.at("without the tree")};
    const std::string page = content(cellar_test::source_dir() + "/docs/chat-and-serve.md");
    for (const auto& [name, count] : {std::pair{"tokens computed", "tokens_computed"}, std::pair{"steps", "steps"},
                                      std::pair{"preemptions", "preemptions"}}) {
        CAPTURE(row(name, runs, count));
        CHECK(page.find(row(name, runs, count)) != std::string::npos);
    }
    const auto computed = [&](int i) { return with_comma(runs.at(static_cast<std::size_t>(i)).at("tokens_computed")); };
    const std::string figures = computed(2) + " / **" + computed(1) + "** / **" + computed(0) + "**";
    CAPTURE(figures);
    CHECK(content(cellar_test::source_dir() + "/README.md").find(figures) != std::string::npos);
    // To draw it again: serve --svg docs/images/serve.svg
    CHECK(content(scratch.path("svg")) == content(cellar_test::source_dir() + "/docs/images/serve.svg"));
}

TEST_CASE("serve: wrong flags and traces are refused") {
    check_refused(run(CELLAR_SERVE " --users 0"), 2, "--users");
    check_refused(run(CELLAR_SERVE " --context 8"), 1, "--context is 8, expected 16 to 256");
    check_refused(run(CELLAR_SERVE " --usefulness none"), 2, "--usefulness");
    check_refused(run(CELLAR_SERVE " --svg /no/such/folder/x.svg"), 1, "/no/such/folder/x.svg: cannot be written");
    check_refused(run(CELLAR_SERVE " --trace /no/such/trace"), 1, "/no/such/trace: cannot be opened");
    check_refused(run(CELLAR_SERVE " --trace /dev/null"), 1, "/dev/null: has no users, expected at least one");
    check_refused(run(CELLAR_SERVE " --cells 100 --trace " + recorded), 1,
                  "user 1 needs 144 tokens, expected at most 100, the context or the cells");
    check_trace_refused("ROMEO", "not a JSON object");
    check_trace_refused(R"({"at": -1})", "'at' is -1, expected a number from 0 to 1000000");
    check_trace_refused(R"({"at": 1000001})", "'at' is 1000001, expected a number from 0 to 1000000");
    check_trace_refused(
        R"({"at": 1, "seed": 1, "system": "", "turns": [{"wait": 1000000000, "say": "a", "reply": 1}]})",
        "'wait' is 1000000000, expected a number from 0 to 1000000");
    check_trace_refused(R"({"at": 1, "seed": "x"})", "'seed' is \"x\", expected a number from 0");
    check_trace_refused(R"({"at": 1, "seed": 1})", "'system' is no text");
    check_trace_refused(R"({"at": 1, "seed": 1, "system": "", "turns": []})", "'turns' is no list of turns");
    check_trace_refused(R"({"at": 1, "seed": 1, "system": "", "turns": [{"wait": 0, "say": "", "reply": 1}]})",
                        "'say' is empty, expected at least one byte");
    check_trace_refused(R"({"at": 1, "seed": 1, "system": "", "turns": [{"wait": 0, "say": "a"}]})",
                        "'reply' is null, expected a number from 1 to 1000000");
    check_trace_refused(
        R"({"at": 1, "seed": 1, "system": "", "turns": [{"wait": 0, "say": "a", "reply": 1000000000}]})",
        "'reply' is 1000000000, expected a number from 1 to 1000000");
}

} // namespace test_serve
