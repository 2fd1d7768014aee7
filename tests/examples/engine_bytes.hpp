// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "engine/engine.hpp"
#include "pool/text_model.hpp"

#include <span>
#include <string>
#include <vector>

/// The engine, with bytes as tokens.
class Bytes final : public llama::TextModel {
public:
    explicit Bytes(engine::Engine& engine) : engine_{engine} {}

    std::vector<int> tokens(const std::string& text) const override { return {text.begin(), text.end()}; }
    std::string text(std::span<const int> tokens) const override { return {tokens.begin(), tokens.end()}; }
    int vocabulary() const override { return engine_.model().shape().vocabulary; }
    const llama::Matrix* run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal) override {
        return engine_.run(batch, refusal);
    }

private:
    engine::Engine& engine_;
};
