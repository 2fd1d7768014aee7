// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Generates text with a byte-level model in a safetensors file. At the end, it computes the whole text again without a
// memory and compares the logits. `CellarMemory` has all that the model needs of cellar. Given a folder in Hugging
// Face's format, it generates text with that model instead: see examples/folder.
#include "cache_type.hpp"
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
#include <folder/generate.hpp>
#include <iostream>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Options {
    llama::ModelFlags model;
    std::string folder;
    std::string prompt = "ROMEO:\n";
    std::string json;
    std::string backend = "eigen";
    std::string layout = "standard";
    std::string key_type;
    std::string value_type;
    int tokens = 400;
    int draft = 0;
    int history = 0;
    bool compare = false;

    /// The bytes of the whole text, if it may go beyond the context of the training.
    int beyond() const { return history == 0 ? 0 : history + static_cast<int>(prompt.size()) + tokens; }

    llama::CacheFormat format() const { return {.layout = layout, .element = model.element}; }
};

void declare(CLI::App& app, Options& o) {
    app.add_option("folder", o.folder,
                   "a folder in Hugging Face's format: Llama, Mistral, Qwen 2 and 3, Phi-3 and Phi-4, Gemma 2 and 3, "
                   "gpt-oss, DeepSeek V3, Qwen3-Next, Granite 4, Jamba, Nemotron-H, Mamba 2 or LFM2. Of the options, "
                   "it takes --prompt, --tokens, --context, --seed and --temperature, in tokens instead of bytes");
    app.add_option("--prompt", o.prompt, "text to continue")->capture_default_str();
    app.add_option("--tokens", o.tokens, "bytes to generate")->check(CLI::Range(1, 10'000'000))->capture_default_str();
    std::vector<std::string> formats = llama::formats_in_units();
    formats.insert(formats.begin(), {"float", "half", "bf16"});
    llama::declare(app, o.model, formats);
    app.add_option("--cache-type-k", o.key_type,
                   "in place of --cache-type, by llama.cpp's names: f32, f16, bf16, q8_0 or q4_0");
    app.add_option("--cache-type-v", o.value_type,
                   "the same for values (default: as the keys); q4_0 goes with keys of q8_0");
    app.add_option("--backend", o.backend, "where keys, values and states are stored and read")
        ->check(CLI::IsMember({"eigen", "kokkos"}))
        ->capture_default_str();
    app.add_option("--layout", o.layout, "layout of the values in the cache")
        ->check(CLI::IsMember({"standard", "permuted"}))
        ->capture_default_str();
    app.add_option("--draft", o.draft, "bytes to draft from the text so far, verified in one pass")
        ->check(CLI::Range(0, 32))
        ->capture_default_str();
    app.add_option("--history", o.history,
                   "bytes before the prompt: the prompt repeated. The text may then be longer than in training")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    app.add_flag("--compare", o.compare,
                 "also run the text through attention over views with a mask, in turn, and compare speed and logits");
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

void choose_format(Options& o) {
    if (o.key_type.empty() && o.value_type.empty()) return;
    o.model.element = llama::format_of(o.key_type, o.value_type);
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

/// A session, and where its times go.
struct Runner {
    llama::Session& session;
    llama::Pace* prefill;
    llama::Pace* decode;
    llama::Matrix logits{}; // of the newest call
};

double median(std::vector<double> numbers) {
    if (numbers.empty()) return 0;
    const auto middle = numbers.begin() + std::ssize(numbers) / 2;
    std::nth_element(numbers.begin(), middle, numbers.end());
    return *middle;
}

/// Generates a text and prints each byte immediately. The first runner decides what the text is. A second one computes
/// the same text; the two take turns in being the first.
class Writer {
public:
    Writer(std::vector<Runner> runners, const Options& o, llama::Report& report)
        : runners_{std::move(runners)}, options_{o}, report_{report}, sample_{o.model.seed, o.model.temperature} {
        const std::size_t size = o.prompt.size();
        const std::size_t skipped = (size - static_cast<std::size_t>(o.history) % size) % size;
        for (std::size_t i = skipped; i < skipped + static_cast<std::size_t>(o.history) + size; ++i)
            text_.push_back(static_cast<unsigned char>(o.prompt[i % size]));
    }

    void write() {
        std::cout << options_.prompt << std::flush;
        constexpr std::size_t chunk = 64;
        for (std::size_t done = 0; done < text_.size(); done += chunk) {
            const auto tokens = std::span{text_}.subspan(done, std::min(chunk, text_.size() - done));
            run(&Runner::prefill, prefill_ratios_,
                [&](llama::Session& session) -> const llama::Matrix& { return session.feed(tokens); });
            for (const Runner& runner : runners_) runner.prefill->tokens += std::ssize(tokens);
        }
        add(0);
        while (!done()) step();
        for (const Runner& runner : runners_) runner.decode->seconds += shared_seconds_;
        if (report_.over_views) {
            report_.over_views->prefill_ratio = median(prefill_ratios_);
            report_.over_views->decode_ratio = median(decode_ratios_);
        }
        std::cout << "\n\n" << std::flush;
    }

private:
    bool done() const { return static_cast<int>(report_.text.size()) == options_.tokens; }

    /// Computes logits in each session, and compares them and their times.
    template <class Work>
    void run(llama::Pace* Runner::*pace, std::vector<double>& ratios, Work work) {
        std::vector<double> seconds(runners_.size());
        for (std::size_t i = 0; i < runners_.size(); ++i) {
            const std::size_t nth = (i + turn_) % runners_.size();
            Runner& runner = runners_[nth];
            timed(seconds[nth], [&] { runner.logits = work(runner.session); });
            (runner.*pace)->seconds += seconds[nth];
        }
        ++turn_;
        if (!report_.over_views) return;
        ratios.push_back(seconds[1] / seconds[0]);
        double& largest = report_.over_views->difference;
        const llama::Matrix difference = runners_[0].logits - runners_[1].logits;
        largest = difference.allFinite() ? std::max<double>(largest, difference.cwiseAbs().maxCoeff())
                                         : std::numeric_limits<double>::infinity();
    }

    /// Feeds the newest token and a draft of the next ones. Every token is drawn from the logits of the model. The
    /// draft only decides how many tokens one pass yields.
    void step() {
        timed(shared_seconds_, [&] {
            const int left = options_.tokens - static_cast<int>(report_.text.size()) - 1;
            tried_ = llama::draft(text_, std::min({options_.draft, runners_[0].session.room() - 1, left}));
        });
        report_.drafted += static_cast<std::int64_t>(tried_.size());
        tried_.insert(tried_.begin(), text_.back());
        run(&Runner::decode, decode_ratios_,
            [&](llama::Session& session) -> const llama::Matrix& { return session.try_out(tried_); });
        std::size_t kept = 1;
        for (add(0); kept < tried_.size() && text_.back() == tried_[kept]; ++kept) add(static_cast<Eigen::Index>(kept));
        report_.accepted += static_cast<std::int64_t>(kept) - 1;
        for (Runner& runner : runners_) {
            runner.decode->tokens += static_cast<std::int64_t>(kept);
            timed(runner.decode->seconds, [&] { runner.session.keep(static_cast<int>(kept)); });
        }
    }

    /// Draws the next token.
    void add(Eigen::Index row) {
        text_.push_back(timed(shared_seconds_, [&] { return sample_(runners_[0].logits, row); }));
        report_.text += static_cast<char>(text_.back());
        std::cout << report_.text.back() << std::flush;
    }

    std::vector<Runner> runners_;
    const Options& options_;
    llama::Report& report_;
    llama::Sampler sample_;
    std::vector<int> text_;
    std::vector<int> tried_;
    double shared_seconds_ = 0;          // of drafting and sampling
    std::vector<double> prefill_ratios_; // the second session's time by the first one's, in each call
    std::vector<double> decode_ratios_;
    std::size_t turn_ = 0;
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
    report.history = o.history;
    report.prompt = o.prompt;
    return report;
}

int run(Options o) {
    if (!o.folder.empty()) {
        folder::generate({.folder = o.folder,
                          .prompt = o.prompt,
                          .tokens = o.tokens,
                          .context = o.model.context,
                          .seed = o.model.seed,
                          .temperature = o.model.temperature},
                         std::cout);
        return llama::done;
    }
    const auto kokkos = o.backend == "kokkos" ? llama::start_kokkos() : nullptr; // outlives the memory
    llama::Llama model{llama::read_weights(llama::Safetensors::read(o.model.model))};
    if (o.compare && kokkos) throw std::runtime_error{"--compare is for --backend eigen"};
    llama::resolve(o.model, model.config(), o.beyond());
    check_prompt(o, model.config());
    choose_format(o);
    llama::OutputFile json{o.json};
    const llama::TextLimits limits{
        .context = o.model.context, .batch = std::min(64, o.model.context), .rollback = o.draft};
    const auto memory = kokkos ? kokkos->make_memory(model.config(), limits, o.format())
                               : llama::make_memory(model.config(), limits, o.format());
    const llama::SessionOptions options{.check_interval = std::max(1, o.tokens / 32)};
    llama::Session session{model, *memory, options};
    llama::Report report = describe(o, model);
    if (kokkos) report.execution_space = kokkos->execution_space();
    if (o.compare) {
        const auto over_views = llama::make_memory_over_views(model.config(), limits, o.format());
        llama::Session other{model, *over_views, options};
        llama::OverViews& views = report.over_views.emplace();
        Writer{{{session, &report.prefill, &report.decode}, {other, &views.prefill, &views.decode}}, o, report}.write();
    } else {
        Writer{{{session, &report.prefill, &report.decode}}, o, report}.write();
    }
    report.memory = memory->use();
    report.shifts = session.shifts();
    report.check = session.check();
    print(std::cout, report);
    std::cout.flush();
    json.write([&](std::ostream& stream) { write_json(stream, report); });
    if (!report.check.passed())
        throw std::runtime_error{
            "the logits with the memory differ from those without it by more than rounding explains"};
    if (!report.agrees_with_views())
        throw std::runtime_error{"the logits by attend differ from those over views by more than rounding explains"};
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("generate", "Generates text with a small language model", argc, argv, declare, run);
}
