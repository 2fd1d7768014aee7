// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"

#include <Eigen/Core>

#include <cstdint>
#include <vector>

namespace llama {

/// Activations have one row per token, weights one row per output: y = x * W^T.
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowVector = Eigen::Matrix<float, 1, Eigen::Dynamic>;

struct AttentionWeights {
    Matrix query;  // [heads * head_dim, hidden]
    Matrix key;    // [key-value heads * head_dim, hidden]
    Matrix value;  // [key-value heads * head_dim, hidden]
    Matrix output; // [hidden, heads * head_dim]
};

/// A gate of a recurrence: logistic(weight * x + bias). Each block of channels has its own matrix.
struct BlockGate {
    Matrix weight; // [width, width / blocks]
    RowVector bias;
};

/// A causal convolution of each channel, then the linear recurrence of `recur`.
struct RecurrenceWeights {
    Matrix taps; // [width, tokens], newest token last
    RowVector taps_bias;
    RowVector decay; // logarithm of the share of the state that a token keeps if its decay gate is open
    BlockGate decay_gate;
    BlockGate input_gate;
};

/// output(silu(gate(x)) * recurrence(input(x)))
struct RecurrentWeights {
    Matrix input; // [width, hidden]
    Matrix gate;  // [width, hidden]
    RecurrenceWeights recurrence;
    Matrix output; // [hidden, width]
};

/// down(silu(gate(x)) * up(x))
struct FeedForwardWeights {
    Matrix gate; // [intermediate, hidden]
    Matrix up;   // [intermediate, hidden]
    Matrix down; // [hidden, intermediate]
};

struct LayerWeights {
    LayerKind kind{};
    RowVector input_norm;
    AttentionWeights attention; // empty in a recurrent layer
    RecurrentWeights recurrent; // empty in an attention layer
    RowVector feed_forward_norm;
    FeedForwardWeights feed_forward;
};

/// A whole model, in float.
struct Weights {
    Config config;
    Matrix embedding; // [vocabulary, hidden]
    std::vector<LayerWeights> layers;
    RowVector norm;
    Matrix classifier; // [vocabulary, hidden]; empty if the embedding is the classifier

    std::int64_t parameters() const {
        std::int64_t count = embedding.size() + norm.size() + classifier.size();
        for (const LayerWeights& layer : layers) {
            const AttentionWeights& a = layer.attention;
            const FeedForwardWeights& f = layer.feed_forward;
            count += layer.input_norm.size() + layer.feed_forward_norm.size() + a.query.size() + a.key.size()
                     + a.value.size() + a.output.size() + f.gate.size() + f.up.size() + f.down.size()
                     + parameters(layer.recurrent);
        }
        return count;
    }

private:
    static std::int64_t parameters(const RecurrentWeights& w) {
        const RecurrenceWeights& r = w.recurrence;
        return w.input.size() + w.gate.size() + w.output.size() + r.taps.size() + r.taps_bias.size() + r.decay.size()
               + r.decay_gate.weight.size() + r.decay_gate.bias.size() + r.input_gate.weight.size()
               + r.input_gate.bias.size();
    }
};

} // namespace llama
