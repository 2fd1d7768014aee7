// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compare.hpp"

#include "engine.hpp"
#include "libllama.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

namespace {

/// One of those that are compared.
struct Runner {
    std::string name;
    std::function<const llama::Matrix&(std::span<const int> tokens, bool prompt)> run;
    double prompt_seconds = 0;
    std::vector<double> seconds = {}; // of each step
    double prompt_difference = 0;     // the largest
    double difference = 0;            // of a step
    std::int64_t other_bits = 0;      // logits
    std::int64_t logits = 0;
    int other_choices = 0; // of the most likely token
    int choices = 0;
};

const llama::Matrix& run(Runner& runner, std::span<const int> tokens, bool prompt) {
    const auto begin = std::chrono::steady_clock::now();
    const llama::Matrix& logits = runner.run(tokens, prompt);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (prompt) {
        runner.prompt_seconds = seconds;
    } else {
        runner.seconds.push_back(seconds);
    }
    return logits;
}

void compare(Runner& runner, const llama::Matrix& logits, const llama::Matrix& reference, bool prompt) {
    double& largest = prompt ? runner.prompt_difference : runner.difference;
    largest = std::max<double>(largest, (logits - reference).cwiseAbs().maxCoeff());
    runner.other_bits += (logits.array() != reference.array()).count();
    runner.logits += logits.size();
    for (Eigen::Index row = 0; row < logits.rows(); ++row) {
        Eigen::Index ours = 0;
        Eigen::Index theirs = 0;
        logits.row(row).maxCoeff(&ours);
        reference.row(row).maxCoeff(&theirs);
        runner.other_choices += ours == theirs ? 0 : 1;
        ++runner.choices;
    }
}

Runner of_engine(const std::string& name, Engine& engine) {
    return {name, [&engine](std::span<const int> tokens, bool prompt) -> const llama::Matrix& {
                const llama::NewTokens batch{0, tokens};
                cellar::Refusal refusal;
                const llama::Matrix* const logits = engine.run({&batch, 1}, refusal, prompt ? all_tokens : 1);
                if (logits == nullptr) throw std::runtime_error{"the memory refused: " + to_string(refusal)};
                return *logits;
            }};
}

Runner of_libllama(const std::string& name, Libllama& libllama) {
    return {name, [&libllama](std::span<const int> tokens, bool prompt) -> const llama::Matrix& {
                const llama::NewTokens batch{0, tokens};
                return libllama.run({&batch, 1}, prompt);
            }};
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
    return values[values.size() / 2];
}

void print(std::ostream& out, const std::vector<Runner>& runners, int prompt) {
    out << std::left << std::setw(16) << "" << std::right << std::setw(14) << "prompt tok/s" << std::setw(10) << "tok/s"
        << std::setw(14) << "prompt diff" << std::setw(12) << "diff" << std::setw(14) << "other bits" << std::setw(16)
        << "other choices" << '\n';
    for (const Runner& r : runners) {
        out << std::left << std::setw(16) << r.name << std::right << std::fixed << std::setprecision(1) << std::setw(14)
            << prompt / std::max(r.prompt_seconds, 1e-9) << std::setw(10) << 1 / std::max(median(r.seconds), 1e-9)
            << std::defaultfloat << std::setprecision(3) << std::setw(14) << r.prompt_difference << std::setw(12)
            << r.difference << std::setw(14) << r.other_bits << std::setw(10) << r.other_choices << " of " << r.choices
            << '\n';
    }
}

ggml_type plain(ggml_type type) {
    return type == GGML_TYPE_F32 ? type : GGML_TYPE_F16;
}

} // namespace

void compare(const Model& model, const MemoryOptions& options, const CompareOptions& what, std::ostream& out) {
    MemoryOptions own = options;
    own.limits.texts = 1;
    own.limits.context = (what.prompt + what.tokens + 255) / 256 * 256;
    own.limits.batch = what.prompt;
    own.way = Way::attend;
    Engine attend{model, own};
    own.way = Way::flash;
    Engine flash{model, own};
    const auto types = types_of(options.format);
    LibllamaOptions theirs{.threads = model.processor().threads(),
                           .cells = own.limits.context,
                           .batch = what.prompt,
                           .keys = types.first,
                           .values = types.second};
    Libllama with_flash{model.file().path(), theirs};
    theirs.flash = false;
    theirs.values = plain(theirs.values); // without flash attention, libllama takes no others
    Libllama without_flash{model.file().path(), theirs};

    std::vector<Runner> runners{of_libllama("libllama, flash", with_flash), of_libllama("libllama", without_flash),
                                of_engine("engine, flash", flash), of_engine("engine, attend", attend)};
    std::mt19937_64 random{what.seed};
    std::vector<int> tokens;
    for (int i = 0; i < what.prompt + what.tokens; ++i)
        tokens.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(model.shape().vocabulary)));
    const std::span<const int> all{tokens};
    const auto prompt = static_cast<std::size_t>(what.prompt);
    MemoryTimes before;
    for (std::size_t at = 0; at < all.size(); at += at == 0 ? prompt : 1) {
        if (at == prompt) before = attend.memory().times();
        const llama::Matrix* reference = nullptr; // that of the first one
        for (Runner& r : runners) {
            const llama::Matrix& logits = run(r, all.subspan(at, at == 0 ? prompt : 1), at == 0);
            if (reference == nullptr) reference = &logits;
            compare(r, logits, *reference, at == 0);
        }
    }
    print(out, runners, what.prompt);
    double whole = 0;
    for (const double s : runners.back().seconds) whole += s;
    const MemoryTimes times = attend.memory().times();
    const double steps = 1e-3 * what.tokens;
    out << std::fixed << std::setprecision(3) << "a step of the engine with attend: " << whole / steps
        << " ms, of these " << (times.attend - before.attend) / steps << " ms attention and "
        << (times.put - before.put) / steps << " ms storing keys and values (all threads together)\n";
}

} // namespace engine
