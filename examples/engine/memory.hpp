// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "architecture.hpp"
#include "pool/text_pool.hpp"

#include <cstdint>
#include <ggml-backend.h>
#include <ggml.h>
#include <memory>
#include <string>

namespace engine {

/// What remembers in one graph, over the memory's open pass.
class GraphAttention {
public:
    virtual ~GraphAttention() = default;

    /// Stores keys and values of a layer, [head_dim, kv_heads, tokens], and gives the nodes of its attention:
    /// [head_dim * heads, tokens]. Queries are [head_dim, heads, tokens]; queries and keys are rotated.
    virtual ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int layer, ggml_tensor* q, ggml_tensor* k,
                                ggml_tensor* v) = 0;

    /// For a layer with a short convolution: of x [3 * width, tokens], which has gates for the inputs, gates for the
    /// outputs, and inputs, and kernel [taps, width]. The result is [width, tokens].
    virtual ggml_tensor* convolve(ggml_context* context, int layer, ggml_tensor* x, ggml_tensor* kernel) = 0;

    /// False if the open pass needs another graph.
    virtual bool fits() const = 0;

    /// Computes the graph. Throws what its operations throw.
    virtual ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) = 0;
};

/// Seconds that the threads spent since the memory was made; 0 where ggml's attention is used.
struct MemoryTimes {
    double put = 0;
    double attend = 0;
};

/// The memory of many texts, for graphs of ggml.
class Memory : public llama::Texts {
public:
    /// For a graph that is built while a pass is open. It must not outlive the memory.
    virtual std::unique_ptr<GraphAttention> attention(ggml_context* context) = 0;
    virtual MemoryTimes times() const { return {}; }
    /// For measurements: gives a text this many more tokens, whose keys and values are random.
    virtual void fill(int text, int tokens) = 0;
};

/// Whose attention a memory uses.
enum class Way {
    attend, ///< `cellar::attend`, straight over the cells
    flash,  ///< ggml's flash attention over cellar's cells, with a mask: what libllama computes, bit by bit
};

struct MemoryOptions {
    llama::PoolLimits limits = {};
    std::string format = "half"; ///< of keys and values
    Way way = Way::attend;
    int residual = 0; ///< so many of a text's newest tokens are also stored in half, and read from there
    int rollback = 0; ///< how many of a text's newest tokens can be taken back at any time
};

/// Throws if there is no such format.
std::unique_ptr<Memory> make_memory(const Shape& shape, const MemoryOptions& options);

/// Bytes of the keys, values and states that `make_memory` allocates.
std::int64_t memory_bytes(const Shape& shape, const MemoryOptions& options);

/// The most cells with which the memory has at most these bytes. Throws if they are not enough for one batch.
int cells_for_bytes(const Shape& shape, MemoryOptions options, std::int64_t bytes);

} // namespace engine
