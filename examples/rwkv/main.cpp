// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Runs a byte-level RWKV-7 from a file of rwkv.cpp greedily on several prompts at once. Each prompt is a sequence of
// one recurrent memory. A pass feeds the new tokens of all sequences.
#include "checkpoint.hpp"
#include "generate/command_line.hpp"
#include "generate/file.hpp"
#include "memory.hpp"
#include "model.hpp"

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
    std::string checkpoint;
    std::vector<std::string> prompts{"\"in"};
    int tokens = 32;
};

void declare(CLI::App& app, Options& o) {
    app.add_option("checkpoint", o.checkpoint, "model file of rwkv.cpp")->required();
    app.add_option("--prompt", o.prompts, "texts to continue, at once")->capture_default_str();
    app.add_option("--tokens", o.tokens, "bytes to generate")->check(CLI::Range(1, 10'000'000))->capture_default_str();
}

/// Texts that grow together.
class Texts {
public:
    Texts(const rwkv::Rwkv& model, const Options& o)
        : model_{model}, memory_{rwkv::state_shape(model.config()), limits(o)}, texts_(o.prompts.size()) {
        for (std::size_t i = 0; i < texts_.size(); ++i) append(i, o.prompts[i]);
    }

    /// Feeds the new tokens of all texts in one pass, then appends the most likely byte to each text.
    void grow() {
        auto pass = memory_.begin(batch_);
        if (!pass) throw std::runtime_error{"the memory refused a pass: " + to_string(pass.error())};
        const rwkv::Matrix logits = rwkv::forward(model_, *pass, tokens_);
        pass->commit();
        batch_.clear();
        tokens_.clear();
        for (std::size_t i = 0; i < texts_.size(); ++i) {
            Eigen::Index best = 0;
            logits.row(last_token_[i]).maxCoeff(&best);
            append(i, std::string(1, static_cast<char>(best)));
        }
    }

    const std::vector<std::string>& all() const { return texts_; }

private:
    static cellar::StateLimits limits(const Options& o) {
        std::size_t batch = 0;
        for (const std::string& prompt : o.prompts) batch += prompt.size();
        return {.sequences = static_cast<std::int32_t>(o.prompts.size()), .batch = static_cast<std::int32_t>(batch)};
    }

    /// Appends to a text and to the next batch.
    void append(std::size_t i, const std::string& bytes) {
        const cellar::Sequence sequence{static_cast<std::int32_t>(i)};
        batch_.add(sequence, memory_.next(sequence), static_cast<std::int32_t>(bytes.size()));
        for (const char c : bytes) tokens_.push_back(static_cast<unsigned char>(c));
        last_token_[i] = std::ssize(tokens_) - 1;
        texts_[i] += bytes;
    }

    const rwkv::Rwkv& model_;
    rwkv::Memory memory_;
    std::vector<std::string> texts_;
    cellar::BatchBuilder batch_; // the next one
    std::vector<int> tokens_;
    std::vector<Eigen::Index> last_token_ = std::vector<Eigen::Index>(texts_.size()); // of each text, in the batch
};

int run(const Options& o) {
    const rwkv::Rwkv model{rwkv::read_checkpoint(llama::read_file(o.checkpoint))};
    if (model.config().vocab_size != 256) {
        throw std::runtime_error{"the vocabulary has " + std::to_string(model.config().vocab_size)
                                 + " tokens, expected the 256 bytes"};
    }
    for (const std::string& prompt : o.prompts) {
        if (prompt.empty()) throw std::runtime_error{"--prompt is empty, expected at least one byte"};
    }
    Texts texts{model, o};
    for (int i = 0; i < o.tokens; ++i) texts.grow();
    for (const std::string& text : texts.all()) std::cout << text << '\n';
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("rwkv", "Runs a byte-level RWKV-7 on several prompts at once", argc, argv, declare, run);
}
