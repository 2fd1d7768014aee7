// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/command_line.hpp"
#include "generate/flags.hpp"
#include "generate/huggingface.hpp"
#include "generate/memory.hpp"
#include "generate/model.hpp"
#include "generate/safetensors.hpp"
#include "generate/sampler.hpp"
#include "generate/weights.hpp"
#include <cellar/mpi/communicator.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <mpi.h>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace llama {

/// What the programs mpi_* have in common: all ranks read the same model and continue the same prompt.
struct MpiOptions {
    std::string model = CELLAR_EXAMPLES_MODEL;
    std::string prompt = "ROMEO:\n";
    int tokens = 240;

    std::vector<int> text() const {
        std::vector<int> bytes;
        for (const char c : prompt) bytes.push_back(static_cast<unsigned char>(c));
        return bytes;
    }
    static Sampler sampler(std::uint64_t seed = 1) { return {seed, 0.8}; }
};

inline void declare_mpi(CLI::App& app, MpiOptions& o) {
    app.add_option("--model", o.model, "a safetensors file")->capture_default_str();
    app.add_option("--prompt", o.prompt, "text to continue")->capture_default_str();
    app.add_option("--tokens", o.tokens, "bytes to generate")->check(CLI::Range(1, 10'000))->capture_default_str();
}

inline Weights weights_of(const MpiOptions& o) {
    Weights weights = read_weights(Safetensors::read(o.model));
    const Config& c = weights.config;
    expect_bytes(c);
    if (o.prompt.empty()) throw std::runtime_error{"--prompt is empty, expected at least one byte"};
    const auto length = static_cast<int>(o.prompt.size()) + o.tokens;
    if (length > c.max_position_embeddings)
        throw std::runtime_error{"--prompt and --tokens have " + std::to_string(length) + " bytes, expected at most "
                                 + std::to_string(c.max_position_embeddings)};
    if (c.layers(LayerKind::recurrent) > 0) throw std::runtime_error{"the model has layers without attention"};
    return weights;
}

/// Runs a program on all ranks: `run(options, comm)` returns whether this rank found what it expected. An exception on
/// one rank ends all.
template <class Run>
int mpi_command(const char* name, const char* description, int argc, char** argv, Run run) {
    MPI_Init(&argc, &argv);
    const int code = command<MpiOptions>(name, description, argc, argv, declare_mpi, [&](const MpiOptions& o) {
        cellar::mpi::Communicator comm{MPI_COMM_WORLD};
        try {
            int equal = run(o, comm) ? 1 : 0;
            MPI_Allreduce(MPI_IN_PLACE, &equal, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
            if (comm.rank() == 0 && equal == 0) std::cerr << name << ": the text differs from that of one process\n";
            return equal != 0 ? done : failed;
        } catch (const std::exception& error) {
            std::cerr << name << ": rank " << comm.rank() << ": " << error.what() << '\n';
            MPI_Abort(MPI_COMM_WORLD, failed);
            throw;
        }
    });
    MPI_Finalize();
    return code;
}

/// Ends the program if a memory refused, or if a rank failed.
template <class Result>
void expect(const Result& result, const char* what) {
    if (!result) throw std::runtime_error{std::string{what} + ": " + to_string(result.error())};
}

/// Continues `text` by `count` tokens. `feed(tokens, first)` runs tokens at positions first, first + 1, ... and returns
/// the next token. The first `fed` tokens are in memory already.
template <class Feed>
std::string write(std::vector<int> text, int fed, int count, Feed feed) {
    std::string written;
    for (int i = 0; i < count; ++i) {
        const auto position = static_cast<std::size_t>(fed);
        const int next = feed(std::span<const int>{text}.subspan(position), fed);
        fed = static_cast<int>(text.size());
        text.push_back(next);
        written += static_cast<char>(next);
    }
    return written;
}

/// Runs tokens through a model on one process, and returns the next one.
template <class Memory>
int run(Llama& model, Memory& memory, Sampler& sample, std::span<const int> tokens, int first) {
    const int count = static_cast<int>(tokens.size());
    const int last = count - 1;
    expect(memory.begin(first, count), "begin");
    const Matrix& logits = model.forward(tokens, memory, {&last, 1});
    memory.commit();
    return sample(logits);
}

/// The text that one process writes.
inline std::string text_of_one_process(const MpiOptions& o, Sampler sample) {
    Llama model{weights_of(o)};
    const int context = model.config().max_position_embeddings;
    const auto memory = make_memory(model.config(), {.context = context, .batch = context});
    return write(o.text(), 0, o.tokens,
                 [&](std::span<const int> tokens, int first) { return run(model, *memory, sample, tokens, first); });
}

} // namespace llama
