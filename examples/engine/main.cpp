// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Runs a language model from a GGUF file on ggml, with cellar as its memory: one text, a chat, many users, or beside
// libllama.
#include "chat/commands.hpp"
#include "chat/interrupt.hpp"
#include "chat/prompt.hpp"
#include "chat/speaker.hpp"
#include "compare.hpp"
#include "drafts.hpp"
#include "engine.hpp"
#include "generate/command_line.hpp"
#include "generate/file.hpp"
#include "generate/output_file.hpp"
#include "serve/progress.hpp"
#include "serve/report.hpp"
#include "serve/server.hpp"
#include "serve/trace.hpp"
#include "text_model.hpp"
#include "vocabulary.hpp"
#include "writer.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

struct Options {
    std::string command;
    std::string model;
    std::string draft;
    int draft_tokens = 4;
    int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    engine::MemoryOptions memory{.limits = {.texts = 8, .context = 0, .batch = 512, .snapshots = 16}};
    std::string key_type;
    std::string value_type;
    std::int64_t bytes = 0;
    engine::WriterOptions writer;
    std::string prompt;
    std::string system;
    bool answer = false;
    int tokens = 128;
    chat::Place place;
    serve::TraceOptions random{.users = 16};
    std::string trace;
    std::string json;
    bool tree = true;
    engine::CompareOptions compare;
};

const std::map<std::string, engine::Way> ways{{"attend", engine::Way::attend}, {"flash", engine::Way::flash}};

void count(CLI::App& app, const char* name, int& value, const char* description, int least, int most) {
    app.add_option(name, value, description)->check(CLI::Range(least, most))->capture_default_str();
}

CLI::App& command(CLI::App& app, Options& o, const char* name, const char* description) {
    CLI::App& command = *app.add_subcommand(name, description);
    command.callback([&o, name] { o.command = name; });
    return command;
}

void declare_texts(CLI::App& app, Options& o) {
    CLI::App& complete = command(app, o, "complete", "continues a text, or answers a question");
    complete.add_option("--prompt", o.prompt, "the text")->required();
    complete.add_flag("--answer", o.answer, "the text is a question: use the chat template of the file");
    CLI::App& chat = command(app, o, "chat", "a chat in the terminal; /help lists its commands");
    chat.add_option("--folder", o.place.folder, "of the files that /save writes")->capture_default_str();
    count(chat, "--conversations", o.place.conversations, "at a time", 1, 62);
    for (CLI::App* const c : {&complete, &chat}) {
        c->add_option("--system", o.system, "what the model is told first");
        count(*c, "--tokens", o.tokens, "to write at most", 1, 10'000'000);
    }
}

void declare_others(CLI::App& app, Options& o) {
    CLI::App& serve = command(app, o, "serve", "serves many simulated users at once");
    count(serve, "--users", o.random.users, "of the random trace", 1, 100'000);
    count(serve, "--turns", o.random.turns, "of a user at most", 1, 100);
    count(serve, "--reply", o.random.reply, "tokens of a reply at most", 1, 100'000);
    count(serve, "--sequences", o.memory.limits.texts, "requests that run at a time", 1, 4096);
    serve.add_option("--trace", o.trace, "a file with other users; docs/chat-and-serve.md has the format");
    serve.add_option("--host-bytes", o.memory.limits.prefixes.offloaded_bytes, "for prefixes that leave the memory");
    serve.add_flag("--tree,!--no-tree", o.tree, "keep and attach prefixes (default)");
    serve.add_option("--json", o.json, "file for a report with all texts");
    CLI::App& compare = command(app, o, "compare", "the engine beside libllama: logits, tokens/s, where time goes");
    count(compare, "--prompt-tokens", o.compare.prompt, "of the prompt", 1, 8192);
    count(compare, "--tokens", o.compare.tokens, "that follow", 1, 100'000);
}

void declare(CLI::App& app, Options& o) {
    app.require_subcommand(1);
    app.fallthrough();
    app.add_option("--model", o.model, "a GGUF file of the Llama family")->required();
    app.add_option("--draft", o.draft, "a GGUF file of a smaller model with the same vocabulary, which guesses tokens");
    count(app, "--draft-tokens", o.draft_tokens, "that are guessed at a time", 1, 64);
    count(app, "--threads", o.threads, "that compute", 1, 512);
    app.add_option("--context", o.memory.limits.context, "tokens of a text; default: 4096, or that of the training");
    app.add_option("--bytes", o.bytes, "of keys and values; default: enough for the context of one text")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 50));
    count(app, "--batch", o.memory.limits.batch, "tokens of a forward pass at most", 1, 8192);
    app.add_option("--cache-type", o.memory.format, "format of keys and values")
        ->check(CLI::IsMember(engine::formats()))
        ->capture_default_str();
    app.add_option("--cache-type-k", o.key_type, "in place of --cache-type, by llama.cpp's names: f16, f32 or q8_0");
    app.add_option("--cache-type-v", o.value_type, "the same for values: as the keys, or q4_0 with keys of q8_0");
    app.add_option("--attention", o.memory.way, "attend: cellar's; flash: ggml's, with the bits of libllama")
        ->transform(CLI::CheckedTransformer(ways));
    app.add_option("--seed", o.writer.seed, "of the random numbers")
        ->check(llama::unsigned_number)
        ->capture_default_str();
    app.add_option("--temperature", o.writer.temperature, "0 always takes the most likely token")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    declare_texts(app, o);
    declare_others(app, o);
}

/// The format of keys and values of llama.cpp's names; f16 where there is none.
std::string format_of(const std::string& keys, const std::string& values) {
    const auto own = [](const std::string& name) {
        return name.empty() || name == "f16" ? "half" : name == "f32" ? "float" : name;
    };
    return own(keys) == own(values) ? own(keys) : own(keys) + "," + own(values);
}

/// Fills in what the models decide; `drafts` may be null.
void resolve(Options& o, const engine::Model& model, const engine::Model* drafts) {
    constexpr int usual = 4096;
    llama::PoolLimits& limits = o.memory.limits;
    if (!o.key_type.empty() || !o.value_type.empty()) o.memory.format = format_of(o.key_type, o.value_type);
    int trained = model.shape().memory.trained_context;
    if (drafts != nullptr) {
        trained = std::min(trained, drafts->shape().memory.trained_context);
        o.memory.rollback = o.draft_tokens;
    }
    if (limits.context == 0) limits.context = std::min(usual, trained);
    if (limits.context < 16 || limits.context > trained)
        throw std::runtime_error{"--context is " + std::to_string(limits.context) + ", expected 16 to "
                                 + std::to_string(trained) + ", the context of the training"};
    if (o.command == "complete") limits.texts = 1;
    if (o.command == "chat") limits.texts = o.place.conversations;
    limits.batch = std::min(limits.batch, limits.context / 2);
    limits.cells = limits.context;
    if (o.bytes > 0) limits.cells = engine::cells_for_bytes(model.shape(), o.memory, o.bytes);
}

/// What the commands work with.
struct Parts {
    const engine::Engine& engine;
    const engine::Vocabulary& vocabulary;
    llama::TextModel& model;
    llama::Texts& memory;
};

void report(const Parts& p, const engine::Written& written) {
    const llama::PoolUse use = p.memory.use();
    std::fprintf(stderr,
                 "\nprompt: %d tokens computed, %.1f a second; reply: %d tokens, %.1f a second\n"
                 "memory: %d of %d cells used, %.1f MB; %d graphs built; %d shifts\n",
                 written.prompt, written.prompt / std::max(written.prompt_seconds, 1e-9), written.tokens,
                 (written.tokens - 1) / std::max(written.seconds, 1e-9), use.live + use.kept, use.cells,
                 static_cast<double>(p.memory.bytes()) * 1e-6, p.engine.graphs_built(), written.shifts);
}

void complete(const Options& o, const Parts& p) {
    const engine::Vocabulary& vocabulary = p.vocabulary;
    std::vector<int> tokens;
    if (o.answer) {
        engine::ChatTemplate{vocabulary, o.system}.say(tokens, o.prompt);
    } else {
        tokens = vocabulary.tokens(o.prompt, true, false);
        std::cout << o.prompt << std::flush;
    }
    if (tokens.empty()) throw std::runtime_error{"the prompt is empty, expected a text"};
    engine::Writer writer{p.model, p.memory, 0, o.writer};
    const engine::Written written = writer.write(tokens, o.tokens, [&](int token) {
        if (vocabulary.ends(token)) return false;
        std::cout << vocabulary.text(token) << std::flush;
        return true;
    });
    std::cout << std::endl;
    report(p, written);
}

void chat_with(Options& o, const Parts& p) {
    o.place.model = llama::fingerprint(o.model);
    o.place.colour = isatty(STDOUT_FILENO) != 0;
    const engine::ChatTemplate manner{p.vocabulary, o.system};
    chat::Speaker speaker{
        p.model, p.memory, manner, {.tokens = o.tokens, .seed = o.writer.seed, .temperature = o.writer.temperature}};
    chat::Commands commands{p.model, p.memory, speaker, o.place, std::cout};
    chat::catch_interrupts();
    chat::read_lines(commands);
}

void serve_users(Options& o, const Parts& p) {
    llama::OutputFile json{o.json};
    o.random.seed = o.writer.seed;
    const serve::Trace trace = o.trace.empty() ? serve::random_trace(o.random) : serve::read_trace(o.trace);
    const std::string name = o.tree ? "with the tree" : "without the tree";
    serve::Server server{p.model,
                         p.memory,
                         trace,
                         {.tree = o.tree,
                          .temperature = o.writer.temperature,
                          .sinks = o.writer.sinks,
                          .watch = serve::Progress{std::cerr, isatty(STDERR_FILENO) != 0, name}}};
    std::vector<serve::NamedOutcome> runs;
    runs.push_back({name, server.run()});
    if (!runs[0].outcome.audit.empty())
        throw std::runtime_error{"the memory contradicts itself: " + runs[0].outcome.audit};
    print(std::cout, runs);
    json.write([&](std::ostream& stream) { write_json(stream, runs); });
}

void run_command(Options& o, const Parts& p) {
    if (o.command == "complete") complete(o, p);
    if (o.command == "chat") chat_with(o, p);
    if (o.command == "serve") serve_users(o, p);
}

/// With drafts by a second model, which has a memory of its own.
void run_with_drafts(Options& o, const engine::Model& smaller, engine::Engine& engine, engine::EngineText& words,
                     const engine::Vocabulary& vocabulary) {
    if (!vocabulary.is_same(engine::Vocabulary{o.draft}))
        throw std::runtime_error{o.draft + ": has another vocabulary, expected that of " + o.model};
    engine::Engine guesser{smaller, o.memory};
    engine::Drafts drafts{words, engine, guesser, o.draft_tokens};
    run_command(o, {engine, vocabulary, drafts, drafts});
    std::fprintf(stderr, "drafts: %lld of %lld guessed tokens were accepted\n",
                 static_cast<long long>(drafts.counts().accepted), static_cast<long long>(drafts.counts().guessed));
}

int run(Options o) {
    engine::print_errors_only();
    const engine::Model model{o.model, o.threads};
    std::optional<engine::Model> smaller;
    if (!o.draft.empty()) smaller.emplace(o.draft, o.threads);
    resolve(o, model, smaller ? &*smaller : nullptr);
    if (o.command == "compare") {
        o.compare.seed = o.writer.seed;
        engine::compare(model, o.memory, o.compare, std::cout);
        return llama::done;
    }
    engine::Engine engine{model, o.memory};
    const engine::Vocabulary vocabulary{o.model};
    engine::EngineText words{engine, vocabulary};
    if (smaller) {
        run_with_drafts(o, *smaller, engine, words, vocabulary);
    } else {
        run_command(o, {engine, vocabulary, words, engine.memory()});
    }
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("engine", "Runs a model from a GGUF file, with cellar as its memory", argc, argv, declare,
                          run);
}
