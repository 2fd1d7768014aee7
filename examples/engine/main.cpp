// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Runs a language model from a GGUF file on ggml, with cellar as its memory: one text, a chat, many users, or beside
// libllama.
#include "chat/characters.hpp"
#include "chat/commands.hpp"
#include "chat/interrupt.hpp"
#include "chat/prompt.hpp"
#include "chat/speaker.hpp"
#include "compare.hpp"
#include "drafts.hpp"
#include "engine.hpp"
#include "generate/cache_type.hpp"
#include "generate/command_line.hpp"
#include "generate/file.hpp"
#include "generate/output_file.hpp"
#include "perplexity.hpp"
#include "serve/progress.hpp"
#include "serve/report.hpp"
#include "serve/server.hpp"
#include "serve/trace.hpp"
#include "text_model.hpp"
#include "vocabulary.hpp"
#include "widen.hpp"
#include "writer.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

struct Options {
    std::string command;
    std::string model;
    std::string draft;
    int draft_tokens = 4;
    int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    engine::MemoryOptions memory{.limits = {.texts = 8, .context = 0, .batch = 512, .snapshots = 16}};
    std::string key_type = "f16";
    std::string value_type; // empty: as the keys
    std::int64_t bytes = 0;
    engine::WriterOptions writer;
    std::string prompt;
    std::string file;
    std::vector<std::string> stops;
    std::string system;
    bool answer = false;
    int tokens = 128;
    chat::Place place;
    serve::TraceOptions random{.users = 16};
    std::string trace;
    std::string json;
    bool tree = true;
    engine::CompareOptions compare;
    engine::PerplexityOptions perplexity;
    std::string wide;
};

const std::map<std::string, engine::Way> ways{{"attend", engine::Way::attend}, {"flash", engine::Way::flash}};

CLI::Option* count(CLI::App& app, const char* name, int& value, const char* description, int least, int most) {
    return app.add_option(name, value, description)->check(CLI::Range(least, most))->capture_default_str();
}

CLI::App& command(CLI::App& app, Options& o, const char* name, const char* description) {
    CLI::App& command = *app.add_subcommand(name, description);
    command.callback([&o, name] { o.command = name; });
    return command;
}

void declare_texts(CLI::App& app, Options& o) {
    CLI::App& complete = command(app, o, "complete", "continues a text, or answers a question");
    CLI::Option* const prompt = complete.add_option("-p,--prompt", o.prompt, "the text");
    CLI::Option* const file = complete.add_option("-f,--file", o.file, "a file with the text")->excludes(prompt);
    complete.callback([&o, prompt, file] {
        if (prompt->empty() && file->empty()) throw CLI::RequiredError{"--prompt or --file"};
        o.command = "complete";
    });
    CLI::Option* const answer =
        complete.add_flag("--answer", o.answer, "the text is a question: use the chat template of the file");
    complete.add_option("-r,--reverse-prompt", o.stops, "end after these words; may be given several times")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    CLI::App& chat = command(app, o, "chat", "a chat in the terminal; /help lists its commands");
    chat.add_option("--folder", o.place.folder, "of the files that /save writes")->capture_default_str();
    count(chat, "--conversations", o.place.conversations, "at a time", 1, 62);
    for (CLI::App* const c : {&complete, &chat}) {
        CLI::Option* const system = c->add_option("--system-prompt", o.system, "what the model is told first");
        if (c == &complete) system->needs(answer);
        count(*c, "-n,--predict", o.tokens, "tokens to write at most", 1, 10'000'000);
    }
}

void declare_others(CLI::App& app, Options& o) {
    CLI::App& serve = command(app, o, "serve", "serves many simulated users at once");
    count(serve, "--users", o.random.users, "of the random trace", 1, 100'000);
    count(serve, "--turns", o.random.turns, "of a user at most", 1, 100);
    count(serve, "-n,--predict", o.random.reply, "tokens of a reply at most", 1, 100'000);
    count(serve, "--parallel", o.memory.limits.texts, "requests that run at a time", 1, 4096);
    serve.add_option("--trace", o.trace, "a file with other users; docs/chat-and-serve.md has the format");
    serve.add_option("--host-bytes", o.memory.limits.prefixes.offloaded_bytes, "for prefixes that leave the memory");
    serve.add_flag("--tree,!--no-tree", o.tree, "keep and attach prefixes (default)");
    serve.add_option("--json", o.json, "file for a report with all texts");
    CLI::App& compare = command(app, o, "compare", "the engine beside libllama: logits, tokens/s, where time goes");
    count(compare, "--prompt-tokens", o.compare.prompt, "of the prompt", 1, 8192);
    count(compare, "-n,--predict", o.compare.tokens, "tokens that follow", 1, 100'000);
}

void declare_perplexity(CLI::App& app, Options& o) {
    CLI::App& measured = command(app, o, "perplexity", "how well it guesses a text, with each format beside half");
    engine::PerplexityOptions& p = o.perplexity;
    measured.add_option("-f,--file", p.file, "of the text")->required();
    count(measured, "--window", p.window, "tokens at a time, of which the second half is guessed", 32, 8192);
    count(measured, "--windows", p.windows, "of the text", 1, 100'000);
    count(measured, "--samples", p.samples, "windows behind those, which formats after 'scaled.' are calibrated with",
          1, 100'000);
    const auto list = [&](const char* name, std::vector<std::string>& names, const char* description) {
        measured.add_option(name, names, description)->delimiter(';');
    };
    list("--formats", p.formats,
         "of keys and values, or 'keys,values', each stored and read again in a memory of floats; divided by ';'");
    list("--memories", p.memories, "formats of cellar's memories, as 'q8_0,q4_0', with attention over what is stored");
    list("--libllama", p.libllama, "types of ggml, with libllama's own cache and its flash attention");
    CLI::App& widen = command(app, o, "widen", "writes the model with its weights as floats");
    widen.add_option("-o,--output", o.wide, "the new GGUF file")->required();
}

// Names are those of llama.cpp where they mean the same.
void declare(CLI::App& app, Options& o) {
    app.require_subcommand(1);
    app.fallthrough();
    app.footer("For example: engine -m model.gguf complete -p \"Once upon a time\"");
    app.add_option("-m,--model", o.model, "a GGUF file of the Llama family")->required();
    CLI::Option* const draft = app.add_option("--model-draft", o.draft,
                                              "a GGUF file of a smaller model with the same vocabulary, which guesses");
    count(app, "--draft-max", o.draft_tokens, "tokens that are guessed at a time", 1, 64)->needs(draft);
    count(app, "-t,--threads", o.threads, "that compute", 1, 512);
    app.add_option("-c,--ctx-size", o.memory.limits.context,
                   "tokens of a text; default: 4096, or as many as the model was trained with, if these are fewer");
    app.add_option("--bytes", o.bytes, "of keys and values; default: enough for the context of one text")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 50));
    count(app, "-b,--batch-size", o.memory.limits.batch, "tokens of a forward pass at most", 1, 8192);
    app.add_option("--cache-type-k", o.key_type, "format of keys; iq4_nl: 4 bits, rotated")
        ->check(CLI::IsMember({"f16", "f32", "q8_0", "iq4_nl"}))
        ->capture_default_str();
    app.add_option("--cache-type-v", o.value_type, "format of values: that of the keys (default), or q4_0 beside q8_0")
        ->check(CLI::IsMember({"f16", "f32", "q8_0", "q4_0", "iq4_nl"}));
    app.add_option("--residual-length", o.memory.residual,
                   "newest tokens of a text that are also stored in f16, and read from there")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    app.add_option("--attention", o.memory.way, "attend: cellar's; flash: ggml's, with the bits of libllama")
        ->transform(CLI::CheckedTransformer(ways));
    app.add_option("-s,--seed", o.writer.seed, "of the random numbers")
        ->check(llama::unsigned_number)
        ->capture_default_str();
    app.add_option("--temp", o.writer.temperature, "temperature; 0 always takes the most likely token")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    declare_texts(app, o);
    declare_others(app, o);
    declare_perplexity(app, o);
}

/// Those of `engine::Memory`, by llama.cpp's names.
std::string format_of(const std::string& keys, const std::string& values) {
    if (values.empty() || values == keys || (keys == "q8_0" && values == "q4_0")) return llama::format_of(keys, values);
    throw std::runtime_error{"--cache-type-v is " + values + " with keys of " + keys
                             + ", expected the format of the keys, or q4_0 with keys of q8_0"};
}

/// A text that loses its older half keeps the newest tokens, whatever is in a batch.
void expect_room_for_residual(const Options& o) {
    const int most = o.memory.limits.context / 4;
    if (o.memory.residual > most)
        throw std::runtime_error{"--residual-length is " + std::to_string(o.memory.residual) + ", expected at most "
                                 + std::to_string(most) + ", a quarter of the context of "
                                 + std::to_string(o.memory.limits.context) + " tokens"};
}

/// `compare` runs both kinds of attention.
void expect_comparable(const Options& o) {
    if (o.command != "compare") return;
    if (o.memory.residual > 0)
        throw std::runtime_error{"compare: --residual-length is " + std::to_string(o.memory.residual)
                                 + ", expected 0, because ggml's attention has no residual"};
    if (o.key_type == "iq4_nl")
        throw std::runtime_error{"compare: --cache-type-k is iq4_nl, expected f16, f32 or q8_0, which both kinds of "
                                 "attention take"};
}

/// Fills in what the models decide; `drafts` may be null.
void resolve(Options& o, const engine::Model& model, const engine::Model* drafts) {
    constexpr int usual = 4096, least = 16;
    llama::PoolLimits& limits = o.memory.limits;
    o.memory.format = format_of(o.key_type, o.value_type);
    expect_comparable(o);
    int trained = model.shape().memory.trained_context;
    if (drafts != nullptr) {
        trained = std::min(trained, drafts->shape().memory.trained_context);
        o.memory.rollback = o.draft_tokens;
    }
    if (limits.context == 0) limits.context = std::min(usual, trained);
    if (limits.context < least || limits.context > trained)
        throw std::runtime_error{"--ctx-size is " + std::to_string(limits.context) + ", expected "
                                 + std::to_string(least) + " to " + std::to_string(trained)
                                 + ", the context of the training"};
    expect_room_for_residual(o);
    if (o.command == "complete") limits.texts = 1;
    if (o.command == "chat") limits.texts = o.place.conversations;
    limits.batch = std::min(limits.batch, limits.context / 2);
    limits.cells = limits.context;
    if (o.bytes > 0) limits.cells = engine::cells_for_bytes(model.shape(), o.memory, o.bytes);
    if ((o.command != "complete" && o.command != "chat") || limits.cells >= limits.context) return;
    // A text that fills the memory loses its older half, as one that fills its context does.
    if (limits.cells < least)
        throw std::runtime_error{std::to_string(o.bytes) + " bytes hold " + std::to_string(limits.cells)
                                 + " tokens, expected at least " + std::to_string(least)};
    limits.context = limits.cells;
    limits.batch = std::min(limits.batch, limits.context / 2);
    expect_room_for_residual(o);
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

/// That of --file without a newline at its end, or that of --prompt.
std::string prompt_of(const Options& o) {
    if (o.file.empty()) return o.prompt;
    const llama::File file = llama::read_file(o.file);
    std::string text{file.bytes.begin(), file.bytes.end()};
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

/// Whether a written text has one of the words that end it. Looks at the last `added` bytes, and at what a word may have
/// before them.
bool is_stopped(const std::string& text, std::size_t added, const std::vector<std::string>& words) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        const std::size_t length = std::min(text.size(), added + word.size());
        return !word.empty() && text.find(word, text.size() - length) != std::string::npos;
    });
}

void complete(const Options& o, const Parts& p) {
    const engine::Vocabulary& vocabulary = p.vocabulary;
    const std::string prompt = prompt_of(o);
    std::vector<int> tokens;
    if (o.answer) {
        engine::ChatTemplate{vocabulary, o.system}.say(tokens, prompt);
    } else {
        tokens = vocabulary.tokens(prompt, true, false);
        std::cout << prompt << std::flush;
    }
    if (tokens.empty()) throw std::runtime_error{"the prompt is empty, expected a text"};
    engine::Writer writer{p.model, p.memory, 0, o.writer};
    std::string text;
    chat::WholeCharacters characters;
    chat::catch_interrupts();
    const engine::Written written = writer.write(tokens, o.tokens, [&](int token) {
        if (vocabulary.ends(token)) return false;
        const std::string piece = vocabulary.text(token);
        std::cout << characters.add(piece) << std::flush;
        text += piece;
        return !is_stopped(text, piece.size(), o.stops) && !chat::was_interrupted();
    });
    std::cout << std::endl;
    report(p, written);
}

void chat_with(Options& o, const Parts& p) {
    o.place.model = p.engine.model().file().fingerprint();
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
    if (o.command == "widen") {
        engine::widen(o.model, o.wide);
        return llama::done;
    }
    const engine::Model model{o.model, o.threads};
    std::optional<engine::Model> smaller;
    if (!o.draft.empty()) smaller.emplace(o.draft, o.threads);
    resolve(o, model, smaller ? &*smaller : nullptr);
    if (o.command == "compare") {
        o.compare.seed = o.writer.seed;
        engine::compare(model, o.memory, o.compare, std::cout);
        return llama::done;
    }
    if (o.command == "perplexity") {
        const bool terminal = isatty(STDERR_FILENO) != 0;
        o.perplexity.watch = [terminal](int done, int of) {
            if (terminal || done % 16 == 0 || done == of)
                std::fprintf(stderr, "%s%d of %d runs of a window%s", terminal ? "\r" : "", done, of,
                             terminal && done != of ? "" : "\n");
        };
        engine::perplexity(model, o.memory, o.perplexity, std::cout);
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
    constexpr int ended_by_interrupt = 130; // as shells say it
    return o.command == "complete" && chat::was_interrupted() ? ended_by_interrupt : llama::done;
}

/// The names of llama.cpp's flags that have one dash and several letters, which CLI11 does not know.
void use_long_names(int argc, char** argv) {
    static std::pair<const char*, std::string> names[] = {{"-md", "--model-draft"},
                                                          {"-ctk", "--cache-type-k"},
                                                          {"-ctv", "--cache-type-v"},
                                                          {"-np", "--parallel"},
                                                          {"-sys", "--system-prompt"}};
    const std::string_view before_texts[] = {"-p", "--prompt", "-f", "-r", "--system-prompt"};
    for (int i = 1; i < argc; ++i) {
        const std::string_view before = argv[i - 1];
        if (std::find(std::begin(before_texts), std::end(before_texts), before) != std::end(before_texts)) continue;
        for (auto& [short_name, name] : names)
            if (std::string_view{argv[i]} == short_name) argv[i] = name.data();
    }
}

} // namespace

int main(int argc, char** argv) {
    use_long_names(argc, argv);
    return llama::command("engine", "Runs a model from a GGUF file, with cellar as its memory", argc, argv, declare,
                          run);
}
