// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Generates text with a byte-level model in a safetensors file, through two caches: one for its
// sliding-window layers, one for its full layers. In the end it computes everything again without a
// cache and compares.
#include "llama/choices.hpp"
#include "llama/command_line.hpp"
#include "llama/file.hpp"
#include "llama/huggingface.hpp"
#include "llama/model.hpp"
#include "llama/report.hpp"
#include "llama/sampler.hpp"
#include "llama/session.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
    std::string model = CELLAR_EXAMPLES_MODEL;
    std::string prompt = "ROMEO:\n";
    std::string json;
    std::string layout = "standard";
    std::string cache_type = "float";
    int tokens = 400;
    int context = 0; // 0: what the model was trained for
    std::uint64_t seed = 1;
    double temperature = 0.8;
};

void declare(CLI::App& app, Options& o) {
    app.add_option("--prompt", o.prompt, "the text to go on from")->capture_default_str();
    app.add_option("--tokens", o.tokens, "bytes to generate")->check(CLI::Range(1, 10'000'000))->capture_default_str();
    app.add_option("--seed", o.seed, "another seed, another text")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--temperature", o.temperature, "0 takes the most likely byte every time")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    app.add_option("--model", o.model, "a safetensors file")->capture_default_str();
    app.add_option("--layout", o.layout, "of the values in the cache")
        ->check(CLI::IsMember({"standard", "permuted"}))
        ->capture_default_str();
    app.add_option("--cache-type", o.cache_type, "the elements of the cache")
        ->check(CLI::IsMember({"float", "half", "bf16"}))
        ->capture_default_str();
    app.add_option("--context", o.context, "bytes to remember; default: as the model was trained");
    app.add_option("--json", o.json, "a file for the report");
}

/// Checks what depends on the model.
void settle(Options& o, const llama::Config& config) {
    constexpr int least = 16;
    const int trained = config.max_position_embeddings;
    if (o.context == 0) o.context = trained;
    if (o.context < least || o.context > trained) {
        throw std::runtime_error{"--context is " + std::to_string(o.context) + ", expected " + std::to_string(least)
                                 + " to " + std::to_string(trained) + ", for which the model was trained"};
    }
    if (o.prompt.empty()) throw std::runtime_error{"--prompt is empty, expected at least one byte"};
    if (std::isnan(o.temperature)) throw std::runtime_error{"--temperature is not a number"};
    for (const char c : o.prompt) {
        const int token = static_cast<unsigned char>(c);
        if (token >= config.vocab_size) {
            throw std::runtime_error{"--prompt has byte " + std::to_string(token)
                                     + ", expected less than the vocabulary size " + std::to_string(config.vocab_size)};
        }
    }
}

/// Runs `work` and adds the time that it takes.
template <class Work>
decltype(auto) timed(double& seconds, Work work) {
    struct Timer {
        double& seconds;
        std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
        ~Timer() { seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }
    } timer{seconds};
    return work();
}

/// Streams the text to standard output.
void generate(llama::Session& session, const Options& o, llama::Report& report) {
    std::vector<int> prompt;
    for (const char c : o.prompt) prompt.push_back(static_cast<unsigned char>(c));
    std::cout << o.prompt << std::flush;

    report.prefill.tokens = static_cast<std::int64_t>(prompt.size());
    const llama::Matrix* logits = &timed(
        report.prefill.seconds, [&]() -> auto& { return session.feed(prompt); });

    llama::Sampler sample{o.seed, o.temperature};
    while (true) {
        const int token = timed(report.decode.seconds, [&] { return sample(*logits); });
        report.text += static_cast<char>(token);
        std::cout << report.text.back() << std::flush;
        if (static_cast<int>(report.text.size()) == o.tokens) break;
        logits = &timed(
            report.decode.seconds, [&]() -> auto& {
                return session.feed(std::span{&token, 1});
            });
        ++report.decode.tokens;
    }
    std::cout << "\n\n" << std::flush;
}

/// Opened before the work begins, so that a wrong path is known at once.
std::ofstream open_for_writing(const std::string& path) {
    std::ofstream file;
    if (path.empty()) return file;
    file.open(path);
    if (!file) throw llama::FileError{path, "cannot be written"};
    return file;
}

void save(const llama::Report& report, std::ofstream& file, const std::string& path) {
    if (path.empty()) return;
    write_json(file, report);
    if (!file.flush()) throw llama::FileError{path, "cannot be written"};
}

llama::Report describe(const Options& o, const llama::Llama& model) {
    llama::Report report;
    report.model = o.model;
    report.parameters = model.weights().parameters();
    report.layout = o.layout;
    report.cache_type = o.cache_type;
    report.context = o.context;
    report.seed = o.seed;
    report.temperature = o.temperature;
    report.prompt = o.prompt;
    return report;
}

int run(Options o) {
    llama::Llama model{llama::read_weights(llama::Safetensors::read(o.model))};
    settle(o, model.config());
    std::ofstream json = open_for_writing(o.json);
    const llama::SessionLimits limits{
        .context = o.context, .batch = std::min(64, o.context), .keep_every = std::max(1, o.tokens / 32)};
    const auto memory = llama::make_memory(model.config(), o.layout, o.cache_type, limits.context, limits.batch);
    llama::Session session{model, *memory, limits};

    llama::Report report = describe(o, model);
    generate(session, o, report);
    report.memory = memory->use();
    report.shifts = session.shifts();
    report.check = session.check();
    print(std::cout, report);
    if (!std::cout.flush()) throw std::runtime_error{"the standard output cannot be written"};
    save(report, json, o.json);
    if (!report.check.passed()) {
        throw std::runtime_error{"the logits with the cache differ from those without it by more "
                                 "than rounding explains"};
    }
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Writes text with a small language model, through a cache", "generate"};
    Options options;
    declare(app, options);
    if (const auto code = llama::parse(app, argc, argv)) return *code;
    try {
        return run(options);
    } catch (const std::exception& error) {
        std::cerr << "generate: " << error.what() << '\n';
        return llama::failed;
    }
}
