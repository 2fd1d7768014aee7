// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"
#include "model.hpp"
#include "vocabulary.hpp"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace engine {

struct PerplexityOptions {
    std::string file; ///< of the text
    int window = 512; ///< tokens that are read from an empty memory; the second half of them is guessed
    int windows = 8;
    int samples = 4; ///< windows behind those, from which the factors of "scaled" formats come
    /// Formats of `Rounding`, as "keys" or "keys,values"; in a memory of floats.
    std::vector<std::string> formats;
    /// Formats of the engine's memories, with `attend`, and with the residual of the options.
    std::vector<std::string> memories;
    /// ggml's types for libllama's own cache, with its flash attention.
    std::vector<std::string> libllama;
    /// Told after each run of a window: how many of how many.
    std::function<void(int done, int of)> watch = [](int, int) {};
};

/// How well the model guesses the tokens of a text with keys and values in each format, beside a memory of half. Prints
/// a table in Markdown: bits a value, nats a token, perplexity, how much larger it is than with half (and the standard
/// error of that), the Kullback-Leibler divergence from half, how often the most likely token is the same, and errors
/// of keys and values.
void perplexity(const Model& model, const MemoryOptions& options, const PerplexityOptions& what, std::ostream& out);

} // namespace engine
