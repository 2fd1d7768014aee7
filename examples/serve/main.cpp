// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Serves many simulated users at once, with and without a tree of prefixes, and compares the two: tokens, time, latency
// and texts, which must be equal.
#include "generate/command_line.hpp"
#include "generate/flags.hpp"
#include "generate/huggingface.hpp"
#include "generate/model.hpp"
#include "generate/output_file.hpp"
#include "picture.hpp"
#include "pool/text_model.hpp"
#include "pool/text_pool.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "server.hpp"
#include "trace.hpp"

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

struct Options {
    llama::ModelFlags model;
    serve::TraceOptions random;
    llama::PoolLimits limits{.texts = 8, .cells = 1024, .batch = 64, .snapshots = 64};
    std::string trace;
    std::string record;
    std::string svg;
    std::string json;
    std::string usefulness = "recent";
    bool compare = true;
};

void declare(CLI::App& app, Options& o) {
    const auto count = [&](const char* name, int& value, const char* description, int least, int most) {
        app.add_option(name, value, description)->check(CLI::Range(least, most))->capture_default_str();
    };
    llama::declare(app, o.model, {"float", "half"});
    count("--users", o.random.users, "of the random trace", 1, 100'000);
    count("--systems", o.random.systems, "shared prompts of the random trace", 1, 6);
    app.add_option("--interval", o.random.interval, "mean steps between two users of the random trace")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    count("--turns", o.random.turns, "of a user of the random trace at most", 1, 100);
    count("--reply", o.random.reply, "bytes of a reply of the random trace at most", 1, 100'000);
    app.add_option("--trace", o.trace, "a file with another trace; docs/chat-and-serve.md has the format");
    app.add_option("--record", o.record, "file for the trace");
    count("--cells", o.limits.cells, "tokens that the memory holds", 16, 1'000'000);
    count("--sequences", o.limits.texts, "requests that run at a time", 1, 4096);
    count("--batch", o.limits.batch, "tokens of a forward pass at most", 1, 4096);
    count("--snapshots", o.limits.snapshots, "recurrent states that the tree keeps", 1, 100'000);
    app.add_option("--host-bytes", o.limits.prefixes.offloaded_bytes, "for prefixes that leave the memory; 0: evicted")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 50))
        ->capture_default_str();
    app.add_option("--usefulness", o.usefulness, "which prefixes the tree evicts last")
        ->check(CLI::IsMember({"recent", "tokens-for-each-byte"}))
        ->capture_default_str();
    app.add_flag("--compare,!--no-compare", o.compare, "run without the tree as well (default)");
    app.add_option("--svg", o.svg, "file for a drawing of the memory over time");
    app.add_option("--json", o.json, "file for a report");
}

serve::Trace trace_of(const Options& o) {
    if (!o.trace.empty()) return serve::read_trace(o.trace);
    serve::TraceOptions random = o.random;
    random.seed = o.model.seed;
    random.length = o.model.context;
    return serve::random_trace(random);
}

serve::NamedOutcome serve_all(llama::Llama& model, const Options& o, const serve::Trace& trace, bool tree) {
    const std::string name = tree ? "with the tree" : "without the tree";
    const auto pool = llama::make_pool(model.config(), o.limits, o.model.element);
    llama::ByteModel bytes{model, *pool};
    serve::Server server{bytes,
                         *pool,
                         trace,
                         {.tree = tree,
                          .temperature = o.model.temperature,
                          .watch = serve::Progress{std::cerr, isatty(STDERR_FILENO) != 0, name}}};
    serve::NamedOutcome run{name, server.run()};
    if (!run.outcome.audit.empty()) throw std::runtime_error{"the memory contradicts itself: " + run.outcome.audit};
    return run;
}

void expect_equal(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i] != b[i])
            throw std::runtime_error{"the texts of user " + std::to_string(i + 1)
                                     + " with and without the tree differ, expected equal ones"};
    }
}

int run(Options o) {
    llama::Llama model{llama::read_weights(llama::Safetensors::read(o.model.model)), llama::Products::row_by_row};
    llama::resolve(o.model, model.config());
    llama::expect_bytes(model.config());
    o.limits.context = o.model.context;
    if (o.usefulness != "recent") o.limits.prefixes.usefulness = cellar::tokens_for_each_byte;
    const serve::Trace trace = trace_of(o);
    llama::OutputFile record{o.record};
    llama::OutputFile svg{o.svg};
    llama::OutputFile json{o.json};
    record.write([&](std::ostream& stream) { write_trace(stream, trace); });

    std::vector<serve::NamedOutcome> runs;
    runs.push_back(serve_all(model, o, trace, true));
    if (o.compare) {
        runs.push_back(serve_all(model, o, trace, false));
        expect_equal(runs[0].outcome.texts, runs[1].outcome.texts);
    }
    print(std::cout, runs);
    svg.write([&](std::ostream& stream) { draw(stream, runs); });
    json.write([&](std::ostream& stream) { write_json(stream, runs); });
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("serve", "Serves many simulated users with a small language model", argc, argv, declare, run);
}
