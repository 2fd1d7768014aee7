// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/weights.hpp"
#include "pool/text_pool.hpp"

#include <llama.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// The types of keys and of values of a format: that of both, or "keys,values". See `MemoryOptions`.
std::pair<ggml_type, ggml_type> types_of(const std::string& format);

struct LibllamaOptions {
    int threads = 1;
    int texts = 1;
    int cells = 512; ///< of all texts together
    int batch = 512;
    ggml_type keys = GGML_TYPE_F16;
    ggml_type values = GGML_TYPE_F16;
    bool flash = true;  ///< its flash attention, which reads keys and values as they are stored
    bool pooled = true; ///< all texts in one pool, else in a stream each
};

/// The same model computed by libllama, to compare with. Batches are as for `Engine`.
class Libllama {
public:
    Libllama(const std::string& path, const LibllamaOptions& options);

    /// Throws if it cannot be computed.
    const llama::Matrix& run(std::span<const llama::NewTokens> batch, bool every_token = false);

    int length(int text) const { return llama_memory_seq_pos_max(memory(), text) + 1; }
    void copy_prefix(int from, int to, int length) { llama_memory_seq_cp(memory(), from, to, 0, length); }
    void clear(int text) { llama_memory_seq_rm(memory(), text, -1, -1); }
    /// Later tokens move down.
    void remove(int text, int begin, int end);

    /// For measurements: gives a text without tokens this many, whose keys and values are random. Throws if libllama
    /// describes its state in another form than this knows (0.7 of Debian).
    void fill(int text, int tokens);

    llama_context* context() const { return context_.get(); }

private:
    llama_memory_t memory() const { return llama_get_memory(context_.get()); }

    std::unique_ptr<llama_model, decltype(&llama_model_free)> model_;
    std::unique_ptr<llama_context, decltype(&llama_free)> context_;
    LibllamaOptions options_;
    llama::Matrix logits_;
};

} // namespace engine
