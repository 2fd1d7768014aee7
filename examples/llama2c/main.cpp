// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Runs a llama2.c checkpoint greedily with a cache and prints token ids.
#include "checkpoint.hpp"
#include "generate/command_line.hpp"
#include "generate/memory.hpp"
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "generate/session.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>

namespace {

struct Options {
    std::string checkpoint;
    std::string layout = "standard";
    int tokens = 200;
    int first = 1; // begin of text in the tokenizers of these models
};

void declare(CLI::App& app, Options& o) {
    app.add_option("checkpoint", o.checkpoint, "model file of llama2.c")->required();
    app.add_option("--tokens", o.tokens, "tokens to generate")->check(CLI::Range(1, 10'000'000))->capture_default_str();
    app.add_option("--first", o.first, "first token")->capture_default_str();
    app.add_option("--layout", o.layout, "layout of the values in the cache")
        ->check(CLI::IsMember({"standard", "permuted"}))
        ->capture_default_str();
}

int run(const Options& o) {
    llama::Llama model{llama::read_checkpoint(llama::read_file(o.checkpoint))};
    const llama::Config& config = model.config();
    if (o.first < 0 || o.first >= config.vocab_size) {
        throw std::runtime_error{"--first is " + std::to_string(o.first) + ", expected 0 to "
                                 + std::to_string(config.vocab_size - 1)};
    }
    const llama::TextLimits limits{.context = config.max_position_embeddings, .batch = 1};
    const auto memory = llama::make_memory(config, limits, {.layout = o.layout});
    llama::Session session{model, *memory, {.check_interval = std::max(1, o.tokens / 32)}};
    llama::Sampler most_likely{0, 0.0};
    int token = o.first;
    for (int i = 0; i < o.tokens; ++i) {
        token = most_likely(session.feed(std::span{&token, 1}));
        std::cout << token << (i + 1 < o.tokens ? ' ' : '\n') << std::flush;
    }
    const llama::Check check = session.check();
    if (!check.passed()) {
        throw std::runtime_error{"the logits with the memory differ from those without it by "
                                 + std::to_string(check.difference) + ", expected at most "
                                 + std::to_string(check.bound)};
    }
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("llama2c", "Runs a llama2.c checkpoint with a cache and prints token ids", argc, argv,
                          declare, run);
}
