// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "chat/manner.hpp"
#include "engine.hpp"
#include "pool/text_model.hpp"
#include "vocabulary.hpp"

#include <span>
#include <string>
#include <vector>

namespace engine {

/// The engine for programs for texts.
class EngineText final : public llama::TextModel {
public:
    EngineText(Engine& engine, const Vocabulary& vocabulary) : engine_{engine}, vocabulary_{vocabulary} {}

    std::vector<int> tokens(const std::string& text) const override { return vocabulary_.tokens(text, false, false); }
    std::string text(std::span<const int> tokens) const override { return vocabulary_.text(tokens); }
    int vocabulary() const override { return engine_.model().shape().vocabulary; }

    const llama::Matrix* run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal) override {
        return engine_.run(batch, refusal);
    }

private:
    Engine& engine_;
    const Vocabulary& vocabulary_;
};

/// A conversation in the form of the file's chat template.
class ChatTemplate final : public chat::Manner {
public:
    /// `system`: what the model is told before the first turn; may be empty. Throws if the file has no template that
    /// libllama knows.
    ChatTemplate(const Vocabulary& vocabulary, std::string system);

    void say(std::vector<int>& tokens, const std::string& line) const override;
    bool ends(std::span<const int> reply) const override { return !reply.empty() && vocabulary_.ends(reply.back()); }

private:
    std::string form(std::span<const Message> messages) const;

    const Vocabulary& vocabulary_;
    std::string system_;
};

} // namespace engine
