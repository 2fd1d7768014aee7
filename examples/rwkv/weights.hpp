// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/weights.hpp"

#include <vector>

namespace rwkv {

using llama::Matrix;
using llama::RowVector;

struct Config {
    int vocab_size = 0;
    int hidden_size = 0;
    int heads = 0; ///< of the time mix
    int layers = 0;

    int head_dim() const { return hidden_size / heads; }
};

struct Norm {
    RowVector weight;
    RowVector bias;
};

/// up(f(down(x))), for some function f.
struct LowRank {
    Matrix down; // [rank, hidden]
    Matrix up;   // [hidden, rank]
};

/// A use of the mix of a token with the previous one: x + (previous - x) * share.
enum Use { of_receptance, of_decay, of_key, of_value, of_rate, of_gate };

struct TimeMixWeights {
    Norm norm;
    Matrix shares; // [6 uses, hidden]
    Matrix receptance, key, value, output;
    LowRank decay, rate, value_mix, gate; // value_mix is empty in the first layer
    RowVector decay_bias, rate_bias, value_mix_bias;
    RowVector removal_scale; // k_k
    RowVector rate_scale;    // k_a
    RowVector bonus;         // r_k
    Norm head_norm;          // per head
};

struct ChannelMixWeights {
    Norm norm;
    RowVector share;
    Matrix key;   // [wide, hidden]
    Matrix value; // [hidden, wide]
};

struct LayerWeights {
    TimeMixWeights time_mix;
    ChannelMixWeights channel_mix;
};

/// A whole model, in float.
struct Weights {
    Config config;
    Matrix embedding; // [vocabulary, hidden]
    Norm embedding_norm;
    std::vector<LayerWeights> layers;
    Norm norm;
    Matrix classifier; // [vocabulary, hidden]
};

} // namespace rwkv
