// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"

#include <Eigen/Core>

#include <cstdint>
#include <vector>

namespace llama {

/// Activations have a row per token, weights a row per output: y = x * W^T.
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowVector = Eigen::Matrix<float, 1, Eigen::Dynamic>;

struct AttentionWeights {
    Matrix query;  // [heads * head_dim, hidden]
    Matrix key;    // [key-value heads * head_dim, hidden]
    Matrix value;  // [key-value heads * head_dim, hidden]
    Matrix output; // [hidden, heads * head_dim]
};

/// down(silu(gate(x)) * up(x))
struct FeedForwardWeights {
    Matrix gate; // [intermediate, hidden]
    Matrix up;   // [intermediate, hidden]
    Matrix down; // [hidden, intermediate]
};

struct LayerWeights {
    LayerKind kind{};
    RowVector attention_norm;
    AttentionWeights attention;
    RowVector feed_forward_norm;
    FeedForwardWeights feed_forward;
};

/// A whole model, in float.
struct Weights {
    Config config;
    Matrix embedding; // [vocabulary, hidden]
    std::vector<LayerWeights> layers;
    RowVector norm;
    Matrix classifier; // as the embedding; empty where that is the classifier too

    std::int64_t parameters() const {
        std::int64_t count = embedding.size() + norm.size() + classifier.size();
        for (const LayerWeights& layer : layers) {
            const AttentionWeights& a = layer.attention;
            const FeedForwardWeights& f = layer.feed_forward;
            count += layer.attention_norm.size() + layer.feed_forward_norm.size() + a.query.size() + a.key.size()
                     + a.value.size() + a.output.size() + f.gate.size() + f.up.size() + f.down.size();
        }
        return count;
    }
};

} // namespace llama
