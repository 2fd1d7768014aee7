// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "architecture.hpp"
#include "gguf_file.hpp"
#include "processor.hpp"

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace engine {

/// A matrix [inputs, outputs], and perhaps a bias [outputs].
struct Linear {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};

struct LayerWeights {
    ggml_tensor* attention_norm = nullptr;
    Linear query; ///< none of attention in a layer with a convolution
    Linear key;
    Linear value;
    ggml_tensor* query_norm = nullptr; ///< null: the architecture has none
    ggml_tensor* key_norm = nullptr;
    Linear output;
    Linear convolution_input;                  ///< [width, 3 * width]
    ggml_tensor* convolution_kernel = nullptr; ///< [taps, width]
    ggml_tensor* attention_post_norm = nullptr;
    ggml_tensor* feed_forward_norm = nullptr;
    Linear gate;
    Linear up;
    Linear down;
    ggml_tensor* feed_forward_post_norm = nullptr;
};

/// A model's tensors: where they are in the mapped file, or packed in memory of their own, as libllama does it.
class Weights {
public:
    /// Throws `FileError` if a tensor is missing, is unknown, or has other extents than the numbers say.
    Weights(const GgufFile& file, Shape& shape, const Processor& processor);

    ggml_tensor* embedding = nullptr; // [width, vocabulary]
    std::vector<LayerWeights> layers;
    ggml_tensor* norm = nullptr;
    Linear classifier;
    ggml_tensor* rope_divisors = nullptr; ///< of the frequencies; null: none

private:
    using Extents = std::initializer_list<std::int64_t>;

    LayerWeights layer(int i, const Shape& shape);
    void mixer(int i, const Shape& shape, LayerWeights& w);
    Linear linear(const std::string& name, std::int64_t inputs, std::int64_t outputs);
    ggml_tensor* vector(const std::string& name, std::int64_t size);
    ggml_tensor* find(const std::string& name, Extents extents);
    ggml_tensor* required(const std::string& name, Extents extents);
    ggml_tensor* packed(ggml_tensor* tensor);
    void expect_all_used() const;
    void pack();

    const GgufFile& file_;
    const Processor& processor_;
    std::set<std::string> used_;
    struct Packed {
        ggml_context_ptr context;
        ggml_backend_buffer_ptr buffer;
        std::vector<ggml_tensor*> from; // in the order of the context
        std::vector<ggml_tensor*> to;
    };
    std::map<ggml_backend_buffer_type_t, Packed> packed_;
};

} // namespace engine
