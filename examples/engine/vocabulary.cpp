// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "vocabulary.hpp"

#include "gguf_file.hpp"

#include <cstddef>
#include <cstdio>
#include <stdexcept>

namespace engine {

void print_errors_only() {
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
            if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
}

namespace {

llama_model* load(const std::string& path) {
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_model* const model = llama_model_load_from_file(path.c_str(), params);
    if (model == nullptr) throw FileError{path, "has no vocabulary that libllama reads"};
    return model;
}

} // namespace

Vocabulary::Vocabulary(const std::string& path)
    : model_{load(path), llama_model_free}, vocabulary_{llama_model_get_vocab(model_.get())} {}

std::vector<int> Vocabulary::tokens(const std::string& text, bool begin, bool special) const {
    std::vector<int> tokens(text.size() + 8);
    const auto write = [&] {
        return llama_tokenize(vocabulary_, text.data(), static_cast<int>(text.size()), tokens.data(),
                              static_cast<int>(tokens.size()), begin, special);
    };
    int count = write();
    if (count < 0) {
        tokens.resize(static_cast<std::size_t>(-count));
        count = write();
    }
    if (count < 0) throw std::runtime_error{"libllama could not divide the text into tokens"};
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
}

std::string Vocabulary::text(int token, bool special) const {
    std::string piece(64, '\0');
    const auto write = [&] {
        return llama_token_to_piece(vocabulary_, token, piece.data(), static_cast<int>(piece.size()), 0, special);
    };
    int size = write();
    if (size < 0) {
        piece.resize(static_cast<std::size_t>(-size));
        size = write();
    }
    piece.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return piece;
}

std::string Vocabulary::text(std::span<const int> tokens, bool special) const {
    std::string whole;
    for (const int token : tokens) whole += text(token, special);
    return whole;
}

bool Vocabulary::is_same(const Vocabulary& other) const {
    if (size() != other.size()) return false;
    for (int token = 0; token < size(); ++token)
        if (text(token, true) != other.text(token, true)) return false;
    return true;
}

std::optional<std::string> Vocabulary::chat(std::span<const Message> messages) const {
    const char* const form = llama_model_chat_template(model_.get(), nullptr);
    if (form == nullptr) return std::nullopt;
    std::vector<llama_chat_message> given;
    std::size_t size = 256;
    for (const Message& m : messages) {
        given.push_back({m.role.c_str(), m.content.c_str()});
        size += m.role.size() + 2 * m.content.size() + 64;
    }
    std::string prompt(size, '\0');
    const auto write = [&] {
        return llama_chat_apply_template(form, given.data(), given.size(), true, prompt.data(),
                                         static_cast<int>(prompt.size()));
    };
    int length = write();
    if (length > static_cast<int>(prompt.size())) {
        prompt.resize(static_cast<std::size_t>(length));
        length = write();
    }
    if (length < 0) return std::nullopt;
    prompt.resize(static_cast<std::size_t>(length));
    return prompt;
}

} // namespace engine
