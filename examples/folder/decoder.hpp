// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "architecture.hpp"
#include "gated_network.hpp"
#include "latent_attention.hpp"
#include "model_folder.hpp"
#include "recurrence.hpp"
#include <cellar/base/memory_bytes.hpp>
#include <cellar/cellar.hpp>
#include <cellar/models/make_memory.hpp>

#include <cstdint>
#include <generate/weights.hpp>
#include <memory>
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
struct RecentInputs : cellar::StateTensor<2> {}; // of a convolution, [taps - 1, channels]
struct Matrices : cellar::StateTensor<3> {};     // of the heads of a recurrence
struct Channels : cellar::StateTensor<2> {};     // of the channels of a recurrence
using Convolutions = cellar::RecurrentMemory<cellar::States<RecentInputs>>;
using Recurrences = cellar::RecurrentMemory<cellar::States<RecentInputs, Matrices>>;
using ByChannel = cellar::RecurrentMemory<cellar::States<RecentInputs, Channels>>;
using Memory = cellar::Hybrid<cellar::RunTimePattern, Full, Sliding, Convolutions, Recurrences, ByChannel>;
// [/memory]

/// A decoder with the weights of a folder: Llama (so SmolLM 2), Mistral, Qwen 2, Qwen 3, Phi-3 and Phi-4, Gemma 2 and 3,
/// gpt-oss, DeepSeek V3, Qwen3-Next, Granite 4, Jamba, Nemotron-H, Mamba 2 or LFM2.
class Decoder {
public:
    /// `context`: how long sequences are planned to be, as in the limits of the memory, which only LongRoPE asks for.
    /// Throws `std::runtime_error` for another model, or one whose weights do not fit its config.
    explicit Decoder(const ModelFolder& folder, int context = 0);

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
        RowVector first_norm, second_norm;             // empty: the layer does not have that part
        RowVector first_norm_after, second_norm_after; // of the parts' results; empty: none
        RowVector query_norm, key_norm;                // empty: none
        Matrix query, key, value, output;
        RowVector query_bias, key_bias, value_bias, output_bias; // empty: none
        RowVector sinks;                                         // of the heads; empty: none
        Matrix attention_gate;                                   // of the results of attention; empty: none
        std::unique_ptr<const Recurrence> recurrence;            // in place of attention; null: none
        LatentAttention latent;                                  // the same; empty: none
        std::vector<double> frequencies;                         // of rotary pairs; empty: none
        std::unique_ptr<const FeedForward> feed_forward;
    };

    void read_embedding(const ModelFolder& folder);
    Layer read_layer(const ModelFolder& folder, int index, int context) const;
    std::unique_ptr<const Recurrence> read_recurrence(const ModelFolder& folder, const std::string& at,
                                                      const cellar::models::LayerDescription& layer) const;
    void read_attention(const ModelFolder& folder, const std::string& at, int index, Layer& read) const;
    void read_projections(const ModelFolder& folder, const std::string& at,
                          const cellar::models::LayerDescription& layer, Layer& read) const;
    std::unique_ptr<const FeedForward> read_experts(const ModelFolder& folder, const std::string& at) const;
    std::unique_ptr<const FeedForward> read_feed_forward(const ModelFolder& folder, const std::string& at) const;
    RowVector norm_weight(const ModelFolder& folder, const std::string& name, int size) const;
    Matrix normed(const Matrix& x, const RowVector& weight) const;
    void rotate(Matrix& rows, int index, int first) const;
    Matrix mix(cellar::PassOf<Memory>& pass, int index, const Matrix& x, int first) const;
    Matrix recur(cellar::PassOf<Memory>& pass, int index, const Matrix& x) const;
    Matrix attend(cellar::PassOf<Memory>& pass, int index, const Matrix& x, int first) const;
    Matrix attend(cellar::PassOf<Memory>& pass, int index, const Matrix& queries, const Matrix& keys,
                  const Matrix& values) const;

    cellar::models::RunTimeDescription model_;
    Architecture architecture_;
    std::string prefix_; // of the tensors' names
    int vocabulary_ = 0;
    int hidden_ = 0;
    float epsilon_ = 0;
    float embedding_factor_ = 1;
    float residual_factor_ = 1;
    float logits_divisor_ = 1;
    float logits_cap_ = 0; // 0: none
    Matrix embedding_;
    Matrix classifier_; // empty: the embedding
    RowVector norm_;
    std::vector<Layer> layers_;
};

} // namespace folder
