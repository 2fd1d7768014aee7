// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace engine {

const llama::Matrix* Engine::run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal, int outputs) {
    tokens_.clear();
    positions_.clear();
    outputs_.clear();
    for (const llama::NewTokens& part : batch) {
        int position = memory_->length(part.text);
        auto left = std::ssize(part.tokens);
        for (const int token : part.tokens) {
            if (token < 0 || token >= model_.shape().vocabulary)
                throw std::runtime_error{"token " + std::to_string(token) + ", expected 0 to "
                                         + std::to_string(model_.shape().vocabulary - 1)};
            if (left-- <= outputs) outputs_.push_back(static_cast<std::int32_t>(tokens_.size()));
            tokens_.push_back(token);
            positions_.push_back(position++);
        }
    }
    if (const auto begun = memory_->begin(batch); !begun) {
        refusal = begun.error();
        return nullptr;
    }
    try {
        logits_.resize(std::ssize(outputs_), model_.shape().vocabulary);
        const GraphInput input{tokens_, positions_, outputs_};
        graph(input).compute(input, logits_.data());
    } catch (...) {
        memory_->drop();
        throw;
    }
    memory_->commit();
    return &logits_;
}

Graph& Engine::graph(const GraphInput& input) {
    constexpr std::size_t most = 8;
    const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& g) { return g.fits(input); });
    if (found != graphs_.end()) {
        graphs_.splice(graphs_.begin(), graphs_, found);
        return graphs_.front();
    }
    if (graphs_.size() == most) graphs_.pop_back();
    ++graphs_built_;
    return graphs_.emplace_front(model_, *memory_, rounding_, static_cast<int>(input.tokens.size()),
                                 static_cast<int>(input.outputs.size()));
}

} // namespace engine
