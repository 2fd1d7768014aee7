// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"
#include "model.hpp"
#include "rounding.hpp"

#include <ggml-cpp.h>
#include <memory>
#include <span>

namespace engine {

/// A batch as the graph takes it.
struct GraphInput {
    std::span<const std::int32_t> tokens;
    std::span<const std::int32_t> positions; ///< one for each token
    std::span<const std::int32_t> outputs;   ///< the tokens whose logits are wanted
};

/// The graph of a model for a number of tokens and of outputs. It is built and computed while a pass of the memory is
/// open, and serves later passes that it fits.
class Graph {
public:
    /// `rounding` may be null.
    Graph(const Model& model, Memory& memory, Rounding* rounding, int tokens, int outputs);

    bool fits(const GraphInput& input) const;

    /// Writes the logits [outputs, vocabulary]. Throws if it cannot be computed.
    void compute(const GraphInput& input, float* logits);

private:
    ggml_backend_t backend_;
    ggml_context_ptr context_;
    ggml_gallocr_ptr memory_of_nodes_;
    std::unique_ptr<GraphAttention> attention_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* tokens_ = nullptr;
    ggml_tensor* positions_ = nullptr;
    ggml_tensor* outputs_ = nullptr;
    ggml_tensor* logits_ = nullptr;
};

} // namespace engine
