// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "random_model.hpp"

#include <functional>
#include <ggml-cpp.h>
#include <vector>

namespace ggml_test {

/// Stores k and v of a layer, and attends for q: each [dim, heads, tokens]. The results have as many elements.
using Attend = std::function<ggml_tensor*(ggml_context* context, ggml_cgraph* graph, int layer, ggml_tensor* q,
                                          ggml_tensor* k, ggml_tensor* v)>;

/// The graph of a random model for a number of tokens, with any attention.
class Graph {
public:
    /// A scheduler allocates the graph, if one is given; it serves the last graph only that was made with it.
    Graph(const RandomModel& model, int tokens, const Attend& attend, ggml_backend_sched_t scheduler = nullptr);

    /// Sets the inputs, calls compute(graph), and returns the logits of all tokens.
    std::vector<float> compute(const Text& batch, const std::function<void(ggml_cgraph*)>& compute);

private:
    ggml_context_ptr context_;
    ggml_gallocr_ptr memory_;
    ggml_cgraph* graph_;
    ggml_tensor* words_;
    ggml_tensor* positions_;
    ggml_tensor* logits_;
};

/// The factor of scores; 0 if it is 1 / sqrt(key_dim).
float scale_of(const RandomModel& model);

/// True for a layer of gemma3 that sees a window.
bool slides(const RandomModel& model, int layer);

} // namespace ggml_test
