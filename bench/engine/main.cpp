// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Tokens a second of examples/engine beside libllama: the same file, the same threads, by turns in one run.
#include "engine/engine.hpp"
#include "engine/libllama.hpp"
#include "engine/vocabulary.hpp"
#include "generate/cache_type.hpp"
#include "generate/command_line.hpp"
#include "generate/output_file.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

const std::vector<std::string> runner_names{"attend", "ggml", "libllama-flash", "libllama", "libllama-streams"};

struct Options {
    std::string model;
    int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    int rounds = 15;
    int warm_up = 2;
    int prompt = 512;
    std::vector<int> contexts{512, 4096, 16384, 32768};
    std::vector<int> sequences{1, 8};
    std::vector<std::string> runners{runner_names};
    std::string keys;
    std::string values;
    std::int64_t bytes = std::int64_t{4} << 30;
    double seconds = 60;
    std::string json;
};

void declare(CLI::App& app, Options& o) {
    app.add_option("--model", o.model, "a GGUF file")->required();
    app.add_option("--threads", o.threads, "of all")->check(CLI::Range(1, 512))->capture_default_str();
    app.add_option("--rounds", o.rounds, "steps of each, by turns")->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--prompt-tokens", o.prompt, "of a prompt that follows the context; 0: none")
        ->check(CLI::Range(0, 8192))
        ->capture_default_str();
    app.add_option("--contexts", o.contexts, "tokens of each sequence")->delimiter(',')->capture_default_str();
    app.add_option("--sequences", o.sequences, "that decode together")->delimiter(',')->capture_default_str();
    app.add_option("--runners", o.runners, "which ones; at 128k tokens, memory may not suffice for all")
        ->delimiter(',')
        ->check(CLI::IsMember(runner_names))
        ->capture_default_str();
    app.add_option("--cache-type-k", o.keys, "format of keys, in both")->check(CLI::IsMember({"f16", "f32", "q8_0"}));
    app.add_option("--cache-type-v", o.values, "format of values: that of the keys (default), or q4_0 beside q8_0")
        ->check(CLI::IsMember({"f16", "f32", "q8_0", "q4_0"}));
    app.add_option("--bytes", o.bytes, "of keys and values of one engine at most; larger cases are left out")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 50))
        ->capture_default_str();
    app.add_option("--seconds", o.seconds, "for the rounds of a case; then no round begins, but for the first three")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--json", o.json, "file for the measurements");
}

/// One of those that are measured.
struct Runner {
    std::string name;
    bool is_libllama = false;
    std::function<void(std::span<const llama::NewTokens>)> run;
    std::function<void(int begin)> cut; // the first sequence loses its tokens from here on
    std::vector<double> seconds = {};
};

struct Case {
    std::string what; // decode or prefill
    int context;
    int sequences;
    int tokens; // of a round
};

double quantile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

/// The runners of a case, with contexts of random keys and values.
class Bench {
public:
    Bench(const engine::Model& model, const Options& options, int context, int sequences)
        : model_{model}, options_{options}, context_{context}, sequences_{sequences} {
        for (const std::string& name : options.runners) {
            if (name == "attend")
                add_engine(name, engine::Way::attend);
            else if (name == "ggml")
                add_engine(name, engine::Way::flash);
            else if (name == "libllama-flash")
                add_libllama(name, true, true);
            else if (name == "libllama" && !ggml_is_quantized(types_.second))
                add_libllama(name, false, true); // it has no other attention over quantised values
            else if (name == "libllama-streams" && sequences > 1)
                add_libllama(name, true, false);
        }
    }

    /// By turns; another order in each round.
    std::vector<Runner>& measure(bool prompt) {
        std::vector<std::vector<int>> tokens(static_cast<std::size_t>(prompt ? 1 : sequences_));
        std::vector<llama::NewTokens> batch;
        std::mt19937_64 random{1};
        for (Runner& r : runners_) r.seconds.clear();
        const auto begin = Clock::now();
        for (int round = 0; round < options_.warm_up + options_.rounds; ++round) {
            if (round >= options_.warm_up + 3 && since(begin) > options_.seconds) break;
            batch.clear();
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                tokens[i].resize(static_cast<std::size_t>(prompt ? options_.prompt : 1));
                for (int& token : tokens[i])
                    token = static_cast<int>(random() % static_cast<std::uint64_t>(model_.shape().vocabulary));
                batch.push_back({static_cast<int>(i), tokens[i]});
            }
            std::rotate(runners_.begin(), runners_.begin() + 1, runners_.end());
            for (Runner& r : runners_) {
                const auto start = Clock::now();
                r.run(batch);
                if (round >= options_.warm_up) r.seconds.push_back(since(start));
                if (prompt) r.cut(decoded_ + context_);
            }
            if (!prompt) ++decoded_;
        }
        return runners_;
    }

private:
    using Clock = std::chrono::steady_clock;
    static double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

    /// Of one sequence, with what is decoded and a prompt.
    int room() const {
        const int tokens = context_ + options_.warm_up + options_.rounds + options_.prompt + 64;
        return (tokens + 255) / 256 * 256;
    }
    int batch() const { return std::max({64, options_.prompt, sequences_}); }

    void add_engine(const std::string& name, engine::Way way) {
        engines_.push_back(std::make_unique<engine::Engine>(
            model_,
            engine::MemoryOptions{
                .limits = {.texts = sequences_, .context = room(), .cells = room() * sequences_, .batch = batch()},
                .format = format_,
                .way = way}));
        engine::Engine& engine = *engines_.back();
        for (int s = 0; s < sequences_; ++s) engine.memory().fill(s, context_);
        runners_.push_back({name, false,
                            [&engine](std::span<const llama::NewTokens> given) {
                                cellar::Refusal refusal;
                                if (engine.run(given, refusal) == nullptr)
                                    throw std::runtime_error{"the memory refused: " + to_string(refusal)};
                            },
                            [&engine](int begin) {
                                if (!engine.memory().remove(0, begin, engine.memory().length(0)))
                                    throw std::runtime_error{"the memory refused to remove tokens"};
                            }});
    }

    void add_libllama(const std::string& name, bool flash, bool pooled) {
        theirs_.push_back(std::make_unique<engine::Libllama>(model_.file().path(),
                                                             engine::LibllamaOptions{.threads = options_.threads,
                                                                                     .texts = sequences_,
                                                                                     .cells = room() * sequences_,
                                                                                     .batch = batch(),
                                                                                     .keys = types_.first,
                                                                                     .values = types_.second,
                                                                                     .flash = flash,
                                                                                     .pooled = pooled}));
        engine::Libllama& libllama = *theirs_.back();
        for (int s = 0; s < sequences_; ++s) libllama.fill(s, context_);
        runners_.push_back({name, true, [&libllama](std::span<const llama::NewTokens> given) { libllama.run(given); },
                            [&libllama](int begin) { libllama.remove(0, begin, libllama.length(0)); }});
    }

    const engine::Model& model_;
    const Options& options_;
    int context_;
    int sequences_;
    std::string format_{llama::format_of(options_.keys, options_.values)};
    std::pair<ggml_type, ggml_type> types_{engine::types_of(format_)};
    int decoded_ = 0;
    std::vector<std::unique_ptr<engine::Engine>> engines_;
    std::vector<std::unique_ptr<engine::Libllama>> theirs_;
    std::vector<Runner> runners_;
};

/// The median over the rounds of the time of libllama's best way divided by that of a runner.
double ratio_to_best(const Runner& runner, const std::vector<Runner>& all) {
    const Runner* best = nullptr;
    for (const Runner& r : all)
        if (r.is_libllama && (best == nullptr || quantile(r.seconds, 0.5) < quantile(best->seconds, 0.5))) best = &r;
    if (best == nullptr) return std::numeric_limits<double>::quiet_NaN();
    std::vector<double> ratios;
    for (std::size_t i = 0; i < runner.seconds.size(); ++i) ratios.push_back(best->seconds[i] / runner.seconds[i]);
    return quantile(ratios, 0.5);
}

void report(const Case& c, const std::vector<Runner>& runners, nlohmann::ordered_json& json) {
    std::cout << c.what << ", context " << c.context << ", sequences " << c.sequences << '\n';
    nlohmann::ordered_json measured;
    for (const Runner& r : runners) {
        const auto speed = [&](double share) { return c.tokens / quantile(r.seconds, share); };
        const double ratio = ratio_to_best(r, runners);
        std::cout << "  " << std::left << std::setw(26) << r.name << std::right << std::fixed << std::setprecision(1)
                  << std::setw(10) << speed(0.5) << " tokens/s (" << speed(0.75) << " to " << speed(0.25) << "), "
                  << std::setprecision(2) << ratio << " of libllama's best\n";
        measured[r.name] = {{"tokens_per_second", speed(0.5)},
                            {"slow_quartile", speed(0.75)},
                            {"fast_quartile", speed(0.25)},
                            {"ratio_to_best_of_libllama", ratio},
                            {"seconds", r.seconds}};
    }
    std::cout << std::flush;
    json.push_back({{"what", c.what},
                    {"context", c.context},
                    {"sequences", c.sequences},
                    {"tokens_of_a_round", c.tokens},
                    {"runners", measured}});
}

int run(const Options& o) {
    engine::print_errors_only();
    llama::OutputFile file{o.json};
    const engine::Model model{o.model, o.threads};
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const int sequences : o.sequences) {
        for (const int context : o.contexts) {
            const std::int64_t bytes = engine::memory_bytes(
                model.shape(), {.limits = {.texts = sequences, .context = context, .cells = context * sequences},
                                .format = llama::format_of(o.keys, o.values)});
            if (bytes > o.bytes) {
                std::cout << "left out: context " << context << ", sequences " << sequences << ", which take " << bytes
                          << " bytes\n";
                continue;
            }
            Bench bench{model, o, context, sequences};
            report({"decode", context, sequences, sequences}, bench.measure(false), json);
            if (o.prompt > 0 && sequences == 1)
                report({"prompt after it", context, sequences, o.prompt}, bench.measure(true), json);
        }
    }
    file.write([&](std::ostream& stream) {
        stream << nlohmann::ordered_json{{"model", o.model},
                                         {"threads", o.threads},
                                         {"cache_type", llama::format_of(o.keys, o.values)},
                                         {"cases", json}}
                      .dump(2)
               << '\n';
    });
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("cellar_bench_engine", "Tokens a second of the engine beside libllama", argc, argv, declare,
                          run);
}
