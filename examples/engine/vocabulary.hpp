// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <llama.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace engine {

/// Keeps ggml and libllama from writing to the error stream, except for errors.
void print_errors_only();

struct Message {
    std::string role; ///< "system", "user" or "assistant"
    std::string content;
};

/// The tokens of a model, by libllama, which reads nothing but the vocabulary of the file.
class Vocabulary {
public:
    explicit Vocabulary(const std::string& path);

    int size() const { return llama_vocab_n_tokens(vocabulary_); }

    /// With what the model expects before a text (`begin`), and with names of special tokens in it (`special`).
    std::vector<int> tokens(const std::string& text, bool begin, bool special) const;
    /// Of special tokens nothing, unless asked for. Bytes: a character may consist of several tokens.
    std::string text(int token, bool special = false) const;
    std::string text(std::span<const int> tokens, bool special = false) const;

    /// True if the other one has the same tokens, with the same texts.
    bool is_same(const Vocabulary& other) const;

    /// True if the model has said all with this token.
    bool ends(int token) const { return llama_vocab_is_eog(vocabulary_, token); }

    /// The messages in the form of the file's chat template, with the beginning of the model's answer. Nothing if the
    /// file has no template, or one that libllama does not know.
    std::optional<std::string> chat(std::span<const Message> messages) const;

private:
    std::unique_ptr<llama_model, decltype(&llama_model_free)> model_;
    const llama_vocab* vocabulary_;
};

} // namespace engine
