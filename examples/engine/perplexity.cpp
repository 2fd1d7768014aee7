// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "perplexity.hpp"

#include "engine.hpp"
#include "libllama.hpp"
#include "rounding.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

namespace {

/// Nats of tokens, beside those of half.
struct Sums {
    double nats = 0;
    double more = 0; // than with half
    double squares = 0;
    double divergence = 0;
    int same = 0; // most likely tokens
    int tokens = 0;

    double mean(double sum) const { return sum / tokens; }
    /// The standard error of `more`.
    double error() const {
        const double mean_more = mean(more);
        return std::sqrt((squares / tokens - mean_more * mean_more) / (tokens - 1));
    }
};

/// One of those that are compared.
struct Candidate {
    std::string name;
    std::function<llama::Matrix(std::span<const int> window)> run; ///< logits of the second half
    std::function<std::string()> stored = [] { return " | | "; };  ///< columns: bits, errors of keys and values
    Sums sums = {};
};

/// Logarithms of the probabilities, in place.
void normalise(llama::Matrix& logits) {
    for (Eigen::Index row = 0; row < logits.rows(); ++row) {
        const float largest = logits.row(row).maxCoeff();
        const double sum = (logits.row(row).array() - largest).exp().template cast<double>().sum();
        logits.row(row).array() -= largest + static_cast<float>(std::log(sum));
    }
}

void add(Sums& sums, const llama::Matrix& half, const llama::Matrix& own, std::span<const int> guessed) {
    for (Eigen::Index row = 0; row < own.rows(); ++row) {
        const int token = guessed[static_cast<std::size_t>(row)];
        const double more = double{half(row, token)} - own(row, token);
        sums.nats -= own(row, token);
        sums.more += more;
        sums.squares += more * more;
        sums.divergence +=
            (half.row(row).array().exp() * (half.row(row) - own.row(row)).array()).template cast<double>().sum();
        Eigen::Index of_half = 0;
        Eigen::Index of_own = 0;
        half.row(row).maxCoeff(&of_half);
        own.row(row).maxCoeff(&of_own);
        sums.same += of_half == of_own ? 1 : 0;
        ++sums.tokens;
    }
}

std::pair<std::string, std::string> both_sides(const std::string& names) {
    const std::size_t comma = names.find(',');
    return {names.substr(0, comma), comma == std::string::npos ? names : names.substr(comma + 1)};
}

/// With an empty memory, which is gone afterwards: those of all formats together would be large.
llama::Matrix run_engine(const Model& model, const MemoryOptions& options, Rounding* rounding,
                         std::span<const int> window) {
    Engine engine{model, options, rounding};
    const llama::NewTokens batch{0, window};
    cellar::Refusal refusal;
    const llama::Matrix* const logits = engine.run({&batch, 1}, refusal, static_cast<int>(window.size() / 2));
    if (logits == nullptr) throw std::runtime_error{"the memory refused: " + to_string(refusal)};
    return *logits;
}

std::string columns(double bits, double keys, double values) {
    std::ostringstream text;
    text << std::setprecision(3) << bits << " | " << 100 * keys << " | " << 100 * values;
    return text.str();
}

/// What channels of keys and values are like, in some windows of a text.
cellar::ChannelCalibration sampled(const Model& model, MemoryOptions options, std::span<const int> tokens,
                                   std::size_t window) {
    std::vector<cellar::LayerShape> layers;
    for (const LayerDescription& layer : model.shape().memory.layers) layers.push_back(layer.shape);
    cellar::ChannelCalibration samples{layers};
    Rounding rounding{model.shape(), samples};
    options.format = "float";
    options.residual = 0;
    for (; tokens.size() >= window; tokens = tokens.subspan(window))
        run_engine(model, options, &rounding, tokens.first(window));
    return samples;
}

Candidate in_format(const Model& model, MemoryOptions options, const std::string& name,
                    const cellar::ChannelCalibration& samples) {
    const auto [keys, values] = both_sides(name);
    const auto rounding = std::make_shared<Rounding>(keys, values, model.shape(), samples);
    options.format = "float";
    options.residual = 0;
    return {name,
            [&model, options, rounding](std::span<const int> window) {
                return run_engine(model, options, rounding.get(), window);
            },
            [rounding, tokens = options.limits.context] {
                return columns(rounding->bits_a_value(tokens), rounding->key_error(), rounding->value_error());
            }};
}
Candidate in_memory(const Model& model, MemoryOptions options, const std::string& name) {
    options.format = name;
    const std::string residual = options.residual > 0 ? ", residual " + std::to_string(options.residual) : "";
    return {name + residual + ", stored",
            [&model, options](std::span<const int> window) { return run_engine(model, options, nullptr, window); }};
}
ggml_type type_of(const std::string& name) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type)
        if (name == ggml_type_name(static_cast<ggml_type>(type))) return static_cast<ggml_type>(type);
    throw std::runtime_error{"ggml has no type '" + name + "'"};
}
Candidate in_libllama(const Model& model, const MemoryOptions& options, const std::string& name) {
    const auto [keys, values] = both_sides(name);
    const auto libllama =
        std::make_shared<Libllama>(model.file().path(), LibllamaOptions{.threads = model.processor().threads(),
                                                                        .cells = options.limits.context,
                                                                        .batch = options.limits.batch,
                                                                        .keys = type_of(keys),
                                                                        .values = type_of(values)});
    return {name + ", libllama", [libllama](std::span<const int> window) -> llama::Matrix {
                const llama::NewTokens batch{0, window};
                libllama->clear(0);
                return libllama->run({&batch, 1}, true).bottomRows(static_cast<Eigen::Index>(window.size() / 2));
            }};
}

std::vector<int> read_tokens(const Model& model, const std::string& path, std::size_t count) {
    std::ifstream file{path, std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    if (!file || text.empty()) throw std::runtime_error{path + ": cannot be read"};
    std::vector<int> tokens = Vocabulary{model.file().path()}.tokens(text, true, false);
    if (tokens.size() < count)
        throw std::runtime_error{path + " has " + std::to_string(tokens.size()) + " tokens, expected at least "
                                 + std::to_string(count)};
    return tokens;
}

void print(std::ostream& out, const std::vector<Candidate>& candidates, int tokens) {
    out << "| format | bits | keys, % | values, % | nats | perplexity | more, % | divergence | same choice, % |\n"
        << "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for (const Candidate& c : candidates) {
        const Sums& s = c.sums;
        const auto percent = [](double more) { return 100 * std::expm1(more); };
        out << "| " << c.name << " | " << c.stored() << " | " << std::fixed << std::setprecision(4) << s.mean(s.nats)
            << " | " << std::setprecision(3) << std::exp(s.mean(s.nats)) << " | " << percent(s.mean(s.more)) << " ± "
            << 100 * s.error() << " | " << std::setprecision(5) << s.mean(s.divergence) << " | " << std::setprecision(2)
            << 100.0 * s.same / s.tokens << " |\n"
            << std::defaultfloat;
    }
    out << tokens << " tokens were guessed.\n";
}

} // namespace

void perplexity(const Model& model, const MemoryOptions& options, const PerplexityOptions& what, std::ostream& out) {
    MemoryOptions own = options;
    own.way = Way::attend;
    own.limits.texts = 1;
    own.limits.context = own.limits.cells = own.limits.batch = what.window;
    const auto window = static_cast<std::size_t>(what.window);
    const auto windows = static_cast<std::size_t>(what.windows);
    const bool scaled = std::any_of(what.formats.begin(), what.formats.end(),
                                    [](const std::string& name) { return name.find("scaled") != std::string::npos; });
    const std::size_t extra = scaled ? window * static_cast<std::size_t>(what.samples) : 0;
    const std::vector<int> tokens = read_tokens(model, what.file, window * windows + 1 + extra);
    const auto samples = sampled(model, own, std::span{tokens}.subspan(window * windows, extra), window);
    MemoryOptions exact = own;
    exact.residual = 0;
    std::vector<Candidate> candidates{in_memory(model, exact, "half")};
    for (const std::string& name : what.formats) candidates.push_back(in_format(model, own, name, samples));
    for (const std::string& name : what.memories) candidates.push_back(in_memory(model, own, name));
    for (const std::string& name : what.libllama) candidates.push_back(in_libllama(model, own, name));

    const std::size_t guesses = window / 2;
    int done = 0;
    for (std::size_t i = 0; i < windows; ++i) {
        const auto of_window = std::span{tokens}.subspan(i * window, window);
        const auto guessed = std::span{tokens}.subspan((i + 1) * window - guesses + 1, guesses);
        llama::Matrix half;
        for (Candidate& c : candidates) {
            llama::Matrix logits = c.run(of_window);
            normalise(logits);
            if (&c == &candidates.front()) half = logits;
            add(c.sums, half, logits, guessed);
            what.watch(++done, static_cast<int>(windows * candidates.size()));
        }
    }
    print(out, candidates, static_cast<int>(guesses * windows));
}

} // namespace engine
