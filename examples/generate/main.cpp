// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Generates text with a byte-level model in a safetensors file. At the end, it computes the whole text again without a
// memory and compares the logits. `CellarMemory` has all that the model needs of cellar.
#include "command_line.hpp"
#include "draft.hpp"
#include "flags.hpp"
#include "huggingface.hpp"
#include "kokkos.hpp"
#include "memory.hpp"
#include "model.hpp"
#include "output_file.hpp"
#include "report.hpp"
#include "sampler.hpp"
#include "session.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
    llama::ModelFlags model;
    std::string prompt = "ROMEO:\n";
    std::string json;
    std::string backend = "eigen";
    std::string layout = "standard";
    int tokens = 400;
    int draft = 0;

    llama::CacheFormat format() const { return {.layout = layout, .element = model.element}; }
};

void declare(CLI::App& app, Options& o) {
    app.add_option("--prompt", o.prompt, "text to continue")->capture_default_str();
    app.add_option("--tokens", o.tokens, "bytes to generate")->check(CLI::Range(1, 10'000'000))->capture_default_str();
    llama::declare(app, o.model, {"float", "half", "bf16"});
    app.add_option("--backend", o.backend, "where keys, values and states are stored and read")
        ->check(CLI::IsMember({"eigen", "kokkos"}))
        ->capture_default_str();
    app.add_option("--layout", o.layout, "layout of the values in the cache")
        ->check(CLI::IsMember({"standard", "permuted"}))
        ->capture_default_str();
    app.add_option("--draft", o.draft, "bytes to draft from the text so far, verified in one pass")
        ->check(CLI::Range(0, 32))
        ->capture_default_str();
    app.add_option("--json", o.json, "file for a report");
}

void check_prompt(const Options& o, const llama::Config& config) {
    if (o.prompt.empty()) throw std::runtime_error{"--prompt is empty, expected at least one byte"};
    for (const char c : o.prompt) {
        const int token = static_cast<unsigned char>(c);
        if (token >= config.vocab_size) {
            throw std::runtime_error{"--prompt has byte " + std::to_string(token)
                                     + ", expected less than the vocabulary size " + std::to_string(config.vocab_size)};
        }
    }
}

/// Runs `work` and adds its time to `seconds`.
template <class Work>
decltype(auto) timed(double& seconds, Work work) {
    struct Timer {
        double& seconds;
        std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
        ~Timer() { seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }
    } timer{seconds};
    return work();
}

/// Generates a text and prints each byte immediately.
class Writer {
public:
    Writer(llama::Session& session, const Options& o, llama::Report& report)
        : session_{session}, options_{o}, report_{report}, sample_{o.model.seed, o.model.temperature} {
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

    /// Feeds the newest token and a draft of the next ones. Every token is drawn from the logits of the model. The
    /// draft only decides how many tokens one pass yields.
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

llama::Report describe(const Options& o, const llama::Llama& model) {
    llama::Report report;
    report.model = o.model.model;
    report.parameters = model.weights().parameters();
    report.backend = o.backend;
    report.format = o.format();
    report.context = o.model.context;
    report.seed = o.model.seed;
    report.temperature = o.model.temperature;
    report.prompt = o.prompt;
    return report;
}

int run(Options o) {
    const auto kokkos = o.backend == "kokkos" ? llama::start_kokkos() : nullptr; // outlives the memory
    llama::Llama model{llama::read_weights(llama::Safetensors::read(o.model.model))};
    llama::resolve(o.model, model.config());
    check_prompt(o, model.config());
    llama::OutputFile json{o.json};
    const llama::TextLimits limits{
        .context = o.model.context, .batch = std::min(64, o.model.context), .rollback = o.draft};
    const auto memory = kokkos ? kokkos->make_memory(model.config(), limits, o.format())
                               : llama::make_memory(model.config(), limits, o.format());
    llama::Session session{model, *memory, {.check_interval = std::max(1, o.tokens / 32)}};

    llama::Report report = describe(o, model);
    if (kokkos) report.execution_space = kokkos->execution_space();
    Writer{session, o, report}.write();
    report.memory = memory->use();
    report.shifts = session.shifts();
    report.check = session.check();
    print(std::cout, report);
    std::cout.flush();
    json.write([&](std::ostream& stream) { write_json(stream, report); });
    if (!report.check.passed())
        throw std::runtime_error{
            "the logits with the memory differ from those without it by more than rounding explains"};
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("generate", "Generates text with a small language model", argc, argv, declare, run);
}
