// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "command_line.hpp"
#include "config.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace llama {

/// Flags of the programs that run a model from a safetensors file.
struct ModelFlags {
    std::string model = CELLAR_EXAMPLES_MODEL;
    std::string element = "float";
    int context = 0; // 0: the context of the training
    std::uint64_t seed = 1;
    double temperature = 0.8;
};

inline void declare(CLI::App& app, ModelFlags& flags, const std::vector<std::string>& elements) {
    app.add_option("--seed", flags.seed, "of the random numbers")->check(unsigned_number)->capture_default_str();
    app.add_option("--temperature", flags.temperature, "0 always takes the most likely byte")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    app.add_option("--model", flags.model, "a safetensors file")->capture_default_str();
    app.add_option("--cache-type", flags.element, "element type of the cache")
        ->check(CLI::IsMember(elements))
        ->capture_default_str();
    app.add_option("--context", flags.context, "bytes in memory; default: the context of the training");
}

/// Checks the flags against the model, and fills in the context. `beyond`: the context of a text that may go beyond the
/// training; 0 if it may not.
inline void resolve(ModelFlags& flags, const Config& config, int beyond = 0) {
    constexpr int min = 16;
    const int max = std::max(config.max_position_embeddings, beyond);
    if (flags.context == 0) flags.context = max;
    if (flags.context < min || flags.context > max) {
        throw std::runtime_error{"--context is " + std::to_string(flags.context) + ", expected " + std::to_string(min)
                                 + " to " + std::to_string(max)
                                 + (beyond < max ? ", the context of the training" : ", the bytes of the whole text")};
    }
    if (std::isnan(flags.temperature)) throw std::runtime_error{"--temperature is not a number"};
}

/// Checks that a model can read and write bytes.
inline void expect_bytes(const Config& config) {
    if (config.vocab_size == 256) return;
    throw std::runtime_error{"the vocabulary has " + std::to_string(config.vocab_size)
                             + " tokens, expected the 256 bytes"};
}

} // namespace llama
