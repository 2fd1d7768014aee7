// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "experts.hpp"
#include "grouped_experts.hpp"
#include "latent_attention.hpp"
#include "model_folder.hpp"
#include <cellar/base/memory_bytes.hpp>
#include <cellar/cellar.hpp>
#include <cellar/models/make_memory.hpp>

#include <cstdint>
#include <generate/weights.hpp>
#include <span>
#include <string>
#include <vector>

namespace folder {

using llama::Matrix, llama::RowVector;

// [memory]
/// The memory of every model that a folder may hold: each layer goes to the member that its description asks for.
using Layout = cellar::StandardV<float>;
using Rotated = cellar::RopeShift<cellar::RunTimePairing>;
using Full = cellar::Cache<Layout, cellar::FullCausal, Rotated>;
using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Rotated>;
struct RecentInputs : cellar::StateTensor<2> {}; // of a short convolution, [taps - 1, width]
using Convolutions = cellar::RecurrentMemory<cellar::States<RecentInputs>>;
using Memory = cellar::Hybrid<cellar::RunTimePattern, Full, Sliding, Convolutions>;
// [/memory]

/// A decoder with the weights of a folder: Llama (so SmolLM 2), Mistral, Qwen 2, Qwen 3, Gemma 3, gpt-oss, LFM2
/// or DeepSeek V3.
class Decoder {
public:
    /// Throws `std::runtime_error` for another model, or one whose weights do not fit its config.
    explicit Decoder(const ModelFolder& folder);

    const cellar::models::RunTimeDescription& description() const { return model_; }
    int vocabulary() const { return vocabulary_; }

    /// Bytes of `make_memory`, before it is made.
    cellar::MemoryBytes memory_bytes(const cellar::models::MemoryLimits& limits) const;
    Memory make_memory(const cellar::models::MemoryLimits& limits) const;

    /// Runs tokens at positions [first, first + size) of a sequence. Returns a row of logits for each. Refuses as
    /// `begin` does, and then has changed nothing.
    cellar::Result<Matrix> forward(Memory& memory, cellar::Sequence sequence, cellar::Position first,
                                   std::span<const int> tokens) const;

private:
    struct Layer {
        RowVector input_norm, attention_norm, feed_forward_norm, output_norm; // Gemma has all four
        RowVector query_norm, key_norm;                                       // empty: none
        Matrix query, key, value, output, gate, up, down;
        RowVector query_bias, key_bias, value_bias, output_bias; // empty: none
        RowVector sinks;                                         // of the heads; empty: none
        Matrix convolution_input, convolution;                   // in place of attention; empty: none
        LatentAttention latent;                                  // the same
        Experts experts;                                         // in place of gate, up and down
        GroupedExperts grouped_experts;                          // the same
    };

    Layer read_layer(const ModelFolder& folder, int index) const;
    void read_attention(const ModelFolder& folder, const std::string& at, int index, Layer& read) const;
    void read_feed_forward(const ModelFolder& folder, const std::string& at, Layer& read) const;
    RowVector norm_weight(const ModelFolder& folder, const std::string& name, int size) const;
    Matrix normed(const Matrix& x, const RowVector& weight) const;
    void rotate(Matrix& rows, const cellar::models::LayerDescription& layer, int first) const;
    Matrix mix(cellar::PassOf<Memory>& pass, int index, const Matrix& x, int first) const;
    Matrix convolve(cellar::PassOf<Memory>& pass, int index, const Matrix& x) const;
    Matrix attend(cellar::PassOf<Memory>& pass, int index, const Matrix& x, int first) const;
    Matrix attend(cellar::PassOf<Memory>& pass, int index, const Matrix& queries, const Matrix& keys,
                  const Matrix& values) const;
    Matrix feed_forward(const Layer& layer, const Matrix& x) const;

    cellar::models::RunTimeDescription model_;
    std::string prefix_; // of the tensors' names
    bool is_gemma_ = false;
    bool is_lfm2_ = false; // whose tensors have other names
    int vocabulary_ = 0;
    int hidden_ = 0;
    int intermediate_ = 0;
    int experts_ = 0; // of a layer; 0: none
    int chosen_experts_ = 0;
    float epsilon_ = 0;
    Matrix embedding_;
    Matrix classifier_; // empty: the embedding
    RowVector norm_;
    std::vector<Layer> layers_;
};

} // namespace folder
