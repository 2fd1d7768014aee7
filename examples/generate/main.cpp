// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Generates text with a byte-level model in a safetensors file, through a memory for each kind of its
// layers: a cache for those with a sliding window, one for those with full attention, and recurrent
// states, on the host or where Kokkos works. In the end it computes everything again without any memory
// and compares.
#include "choices.hpp"
#include "command_line.hpp"
#include "draft.hpp"
#include "file.hpp"
#include "huggingface.hpp"
#include "kokkos.hpp"
#include "model.hpp"
#include "report.hpp"
#include "sampler.hpp"
#include "session.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
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
    std::string backend = "eigen";
    std::string layout = "standard";
    std::string cache_type = "float";
    int tokens = 400;
    int context = 0; // 0: what the model was trained for
    int draft = 0;
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
    app.add_option("--backend", o.backend, "where the memory lies and is read: on the host, or where Kokkos works")
        ->check(CLI::IsMember({"eigen", "kokkos"}))
        ->capture_default_str();
    app.add_option("--layout", o.layout, "of the values in the cache")
        ->check(CLI::IsMember({"standard", "permuted"}))
        ->capture_default_str();
    app.add_option("--cache-type", o.cache_type, "the elements of the cache")
        ->check(CLI::IsMember({"float", "half", "bf16"}))
        ->capture_default_str();
    app.add_option("--context", o.context, "bytes to remember; default: as the model was trained");
    app.add_option("--draft", o.draft, "bytes to guess from the text so far and to verify in one pass")
        ->check(CLI::Range(0, 32))
        ->capture_default_str();
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

/// Streams a text to standard output as it grows.
class Writer {
public:
    Writer(llama::Session& session, const Options& o, llama::Report& report)
        : session_{session}, options_{o}, report_{report}, sample_{o.seed, o.temperature} {
        for (const char c : o.prompt) text_.push_back(static_cast<unsigned char>(c));
    }

    void write() {
        std::cout << options_.prompt << std::flush;
        report_.prefill.tokens = static_cast<std::int64_t>(text_.size());
        const llama::Matrix* logits = &timed(
            report_.prefill.seconds, [&]() -> auto& { return session_.feed(text_); });
        add(*logits, 0);
        while (!done()) step();
        std::cout << "\n\n" << std::flush;
    }

private:
    bool done() const { return static_cast<int>(report_.text.size()) == options_.tokens; }

    /// Feeds the newest token, and a guess of what follows it. Each token is drawn from the logits of the model, as it
    /// is without a guess; the guess only decides how many of them one pass gives.
    void step() {
        const llama::Matrix* logits = nullptr;
        timed(report_.decode.seconds, [&] {
            const int left = options_.tokens - static_cast<int>(report_.text.size()) - 1;
            tried_ = llama::draft(text_, std::min({options_.draft, session_.room() - 1, left}));
            report_.drafted += static_cast<std::int64_t>(tried_.size());
            tried_.insert(tried_.begin(), text_.back());
            logits = &session_.try_out(tried_);
        });
        std::size_t kept = 1;
        for (add(*logits, 0); kept < tried_.size() && text_.back() == tried_[kept]; ++kept) {
            add(*logits, static_cast<Eigen::Index>(kept));
        }
        report_.accepted += static_cast<std::int64_t>(kept) - 1;
        report_.decode.tokens += static_cast<std::int64_t>(kept);
        timed(report_.decode.seconds, [&] { session_.keep(static_cast<int>(kept)); });
    }

    /// Draws the next token.
    void add(const llama::Matrix& logits, Eigen::Index row) {
        text_.push_back(timed(report_.decode.seconds, [&] { return sample_(logits, row); }));
        report_.text += static_cast<char>(text_.back());
        std::cout << report_.text.back() << std::flush;
    }

    llama::Session& session_;
    const Options& options_;
    llama::Report& report_;
    llama::Sampler sample_;
    std::vector<int> text_;
    std::vector<int> tried_;
};

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
    report.backend = o.backend;
    report.layout = o.layout;
    report.cache_type = o.cache_type;
    report.context = o.context;
    report.seed = o.seed;
    report.temperature = o.temperature;
    report.prompt = o.prompt;
    return report;
}

int run(Options o) {
    const auto kokkos = o.backend == "kokkos" ? llama::start_kokkos() : nullptr; // which outlives the memory
    llama::Llama model{llama::read_weights(llama::Safetensors::read(o.model))};
    settle(o, model.config());
    std::ofstream json = open_for_writing(o.json);
    const llama::SessionLimits limits{.context = o.context,
                                      .batch = std::min(64, o.context),
                                      .keep_every = std::max(1, o.tokens / 32),
                                      .rollback = o.draft};
    const auto memory =
        kokkos
            ? kokkos->make_memory(model.config(), o.layout, o.cache_type, limits.context, limits.batch, limits.rollback)
            : llama::make_memory(model.config(), o.layout, o.cache_type, limits.context, limits.batch, limits.rollback);
    llama::Session session{model, *memory, limits};

    llama::Report report = describe(o, model);
    if (kokkos) report.execution_space = kokkos->execution_space();
    Writer{session, o, report}.write();
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
    return llama::command("generate", "Writes text with a small language model, through its memory", argc, argv,
                          declare, run);
}
