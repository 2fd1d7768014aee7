// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <ggml-cpp.h>
#include <llama.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ggml_test {

/// The same for all architectures.
constexpr int vocabulary = 96, width = 64, heads = 4, kv_heads = 2, head_dim = 16, feed_forward = 96;
/// Of gemma3: five layers of six see a window.
constexpr int window = 24;
/// Of deepseek2: a key is a latent and rotary elements.
constexpr int latent = 32, rotary = 8, mla_key_dim = 24, mla_value_dim = 16;

struct FreesModel {
    void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreesContext {
    void operator()(llama_context* context) const { llama_free(context); }
};

/// A model of one of libllama's architectures with random weights of float. No file is needed.
class RandomModel {
public:
    RandomModel(std::string architecture, int layers);

    const std::string& architecture() const { return architecture_; }
    int layers() const { return layers_; }
    llama_model* get() const { return model_.get(); }

    /// The weights with this name, "blk.3.ffn_up.weight" for example. Null if the architecture has none.
    ggml_tensor* find(const std::string& name) const;
    ggml_tensor* of_layer(int layer, const std::string& name) const;

private:
    static void fill(ggml_tensor* tensor, void* userdata);

    std::string architecture_;
    int layers_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    std::map<std::string, std::vector<float>> data_;
    std::map<std::string, ggml_tensor*> weights_;
    std::unique_ptr<llama_model, FreesModel> model_;
};

/// A token of a batch.
struct Token {
    int sequence;
    int position;
    int word;
};
using Text = std::vector<Token>;

struct LlamaOptions {
    ggml_type element = GGML_TYPE_F16; ///< of keys and values
    bool flash = true;
    int threads = 1; // more of them spin at barriers, which takes long on a busy machine
    int sequences = 4;
};

/// libllama's context of a model: what cellar is compared with.
class Llama {
public:
    explicit Llama(const RandomModel& model, const LlamaOptions& options = {});

    /// The logits of all tokens.
    std::vector<float> decode(const Text& batch);
    void copy(int from, int to, int length);
    void remove(int sequence);

private:
    std::unique_ptr<llama_context, FreesContext> context_;
};

} // namespace ggml_test
