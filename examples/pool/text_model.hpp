// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "text_pool.hpp"

#include <span>
#include <string>
#include <vector>

namespace llama {

/// A model with a memory of many texts, as programs for texts need it.
class TextModel {
public:
    virtual ~TextModel() = default;

    virtual std::vector<int> tokens(const std::string& text) const = 0;
    virtual std::string text(std::span<const int> tokens) const = 0;
    /// Tokens are less than this.
    virtual int vocabulary() const = 0;

    /// Computes the next tokens of texts. Returns a row of logits for the last token of each text, which are valid
    /// until the next call; or null and the refusal.
    virtual const Matrix* run(std::span<const NewTokens> batch, cellar::Refusal& refusal) = 0;
};

/// A model whose tokens are bytes.
class ByteModel final : public TextModel {
public:
    ByteModel(Llama& model, TextPool& pool) : model_{model}, pool_{pool} {}

    std::vector<int> tokens(const std::string& text) const override {
        std::vector<int> tokens;
        for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
        return tokens;
    }
    std::string text(std::span<const int> tokens) const override { return {tokens.begin(), tokens.end()}; }
    int vocabulary() const override { return 256; }

    const Matrix* run(std::span<const NewTokens> batch, cellar::Refusal& refusal) override {
        return llama::run(model_, pool_, batch, refusal);
    }

private:
    Llama& model_;
    TextPool& pool_;
};

} // namespace llama
