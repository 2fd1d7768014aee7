// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/weights.hpp"
#include "graph.hpp"
#include "memory.hpp"
#include "model.hpp"
#include "pool/text_pool.hpp"
#include "rounding.hpp"

#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <span>
#include <vector>

namespace engine {

constexpr int all_tokens = std::numeric_limits<int>::max();

/// Runs batches of texts through a model and a memory.
class Engine {
public:
    /// `rounding`: what becomes of keys and values before they are stored; null: nothing. It must live as long.
    Engine(const Model& model, const MemoryOptions& options, Rounding* rounding = nullptr)
        : model_{model}, memory_{make_memory(model.shape(), options)}, rounding_{rounding} {}

    /// Returns rows of logits, for the last `outputs` tokens of each text, or for all if it has fewer, which are valid
    /// until the next call; or null and the refusal. Throws if it cannot be computed. The memory is as it was after both.
    const llama::Matrix* run(std::span<const llama::NewTokens> batch, cellar::Refusal& refusal, int outputs = 1);

    const Model& model() const { return model_; }
    Memory& memory() { return *memory_; }
    const Memory& memory() const { return *memory_; }
    /// How many graphs were built.
    int graphs_built() const { return graphs_built_; }

private:
    Graph& graph(const GraphInput& input);

    const Model& model_;
    std::unique_ptr<Memory> memory_; // before the graphs, which have nodes of it
    Rounding* rounding_;
    std::list<Graph> graphs_; // the one that was used last comes first
    int graphs_built_ = 0;
    std::vector<std::int32_t> tokens_;
    std::vector<std::int32_t> positions_;
    std::vector<std::int32_t> outputs_;
    llama::Matrix logits_;
};

} // namespace engine
