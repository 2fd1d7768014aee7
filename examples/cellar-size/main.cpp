// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Says how much memory keys, values and states take, for each published model that comes with cellar, or for a
// config.json: for a number of users and tokens, and what fits into a number of gigabytes. Allocates none of it.
#include "generate/cache_type.hpp"
#include "generate/command_line.hpp"
#include <cellar/element/bfloat16.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/models/config.hpp>
#include <cellar/models/models.hpp>
#include <cellar/models/sizes.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

namespace models = cellar::models;

struct Options {
    int users = 200;
    int tokens = 8192; // of each user
    double gigabytes = 24;
    int batch = 512;
    std::string element = "bf16";
    std::string key_type;
    std::string value_type;
    std::string config;
};

void declare(CLI::App& app, Options& o) {
    app.add_option("--users", o.users, "sequences")->check(CLI::Range(1, 1'000'000))->capture_default_str();
    app.add_option("--tokens", o.tokens, "of each user")->check(CLI::Range(1, 1 << 24))->capture_default_str();
    app.add_option("--gb", o.gigabytes, "memory, in units of 2^30 bytes")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    app.add_option("--batch", o.batch, "tokens of a pass at most")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("--element", o.element, "of keys and values; states are floats")
        ->check(CLI::IsMember({"bf16", "float"}))
        ->capture_default_str();
    app.add_option("--cache-type-k", o.key_type,
                   "in place of --element, by llama.cpp's names: f32, f16, bf16, q8_0 or q4_0");
    app.add_option("--cache-type-v", o.value_type,
                   "the same for values (default: as the keys); q4_0 goes with keys of q8_0");
    app.add_option("config", o.config, "a config.json; without one, all models of models.hpp");
}

/// Of keys and values; of both, or "keys,values".
std::string format_of(const Options& o) {
    return o.key_type.empty() && o.value_type.empty() ? o.element : llama::format_of(o.key_type, o.value_type);
}

models::MemoryLimits limits_for(const Options& o, int users) {
    return {.attention = {.sequences = users, .capacity = o.tokens, .batch = o.batch}};
}

/// Of a cache, without those for a batch.
int most_cells(const Options& o) {
    return INT32_MAX - 64 - o.batch;
}

/// What is needed, and what fits.
struct Fit {
    std::int64_t bytes = 0;             // for all users at full length
    std::optional<std::int64_t> tokens; // of all users together; none if what does not grow is too much already
    bool grows = true;                  // with the tokens
    int users = 0;                      // at full length
};

template <class Layout>
Fit fit_of(const models::RunTimeDescription& model, const Options& o) {
    const auto most = static_cast<std::int64_t>(o.gigabytes * static_cast<double>(1 << 30));
    const auto bytes = [&](int users) {
        const auto found = models::bytes<Layout>(model, limits_for(o, users));
        if (!found) throw std::runtime_error{found.error().message};
        return found->total();
    };
    Fit fit{.bytes = bytes(o.users), .tokens = {}, .grows = model.count(models::LayerKind::full) != 0};
    if (const auto largest = models::largest_limits<Layout>(model, limits_for(o, o.users), most))
        fit.tokens = largest->attention.cells;
    const int most_users = std::max(1, std::min(1'000'000, most_cells(o) / o.tokens));
    int step = 1;
    while (step <= most_users) step *= 2;
    for (; step > 0; step /= 2)
        if (fit.users + step <= most_users && bytes(fit.users + step) <= most) fit.users += step;
    return fit;
}

Fit fit_of(const models::RunTimeDescription& model, const std::string& format, const Options& o) {
    using namespace cellar;
    if (format == "bf16" || format == "half") return fit_of<StandardV<bf16>>(model, o); // of the same size
    if (format == "float") return fit_of<StandardV<float>>(model, o);
    if (format == "q8_0") return fit_of<StandardV<q8_0>>(model, o);
    if (format == "q8_0,q4_0") return fit_of<StandardV<q8_0, q4_0>>(model, o);
    if (format == "q4_0") return fit_of<StandardV<q4_0>>(model, o);
    throw std::runtime_error{"keys and values in '" + format
                             + "', expected f32, f16, bf16, q8_0 or q4_0 for both, or keys in q8_0 and values in q4_0"};
}

std::string in_gigabytes(std::int64_t bytes) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / static_cast<double>(1 << 30);
    return text.str();
}

void print(const std::string& name, const models::RunTimeDescription& model, const Options& o) {
    const Fit fit = fit_of(model, format_of(o), o);
    const auto text_of = [&](std::int64_t divisor) -> std::string {
        if (!fit.tokens) return "none";
        return fit.grows ? std::to_string(*fit.tokens / divisor) : "any";
    };
    std::cout << std::left << std::setw(22) << name << std::right << std::setw(12) << in_gigabytes(fit.bytes)
              << std::setw(14) << text_of(1) << std::setw(12) << text_of(o.users) << std::setw(10) << fit.users << '\n';
}

models::RunTimeDescription read_config(const std::string& path) {
    std::ifstream file{path};
    if (!file) throw std::runtime_error{"cannot read " + path};
    const auto model = models::from_config(nlohmann::json::parse(file));
    if (!model) throw std::runtime_error{path + ": " + model.error().message};
    return *model;
}

template <class... Models>
void print_all(models::ModelList<Models...>, const Options& o) {
    (print(std::string{Models::description.name}, models::at_run_time(Models::description), o), ...);
}

int run(const Options& o) {
    if (o.users > most_cells(o) / o.tokens)
        throw std::runtime_error{std::to_string(o.users) + " users of " + std::to_string(o.tokens)
                                 + " tokens, but a cache has at most " + std::to_string(most_cells(o)) + " cells"};
    std::cout << o.users << " users of " << o.tokens << " tokens, keys and values in " << format_of(o)
              << "; what fits into " << o.gigabytes << " GiB\n"
              << std::left << std::setw(22) << "model" << std::right << std::setw(12) << "GiB" << std::setw(14)
              << "tokens in all" << std::setw(12) << "each" << std::setw(10) << "users" << '\n';
    if (o.config.empty()) {
        print_all(models::All{}, o);
    } else {
        const models::RunTimeDescription model = read_config(o.config);
        print(model.architecture, model, o);
    }
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("cellar-size", "Says how much memory the keys, values and states of models take", argc, argv,
                          declare, run);
}
