// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace llama {

enum class LayerKind { recurrent, sliding_attention, full_attention };

/// The elements of a head that rotary positions rotate together: i and i + head_dim / 2 (NeoX), or 2i and 2i + 1.
enum class Pairing { neox, interleaved };

/// The shape of a model, with the names of Hugging Face's Llama and RecurrentGemma.
struct Config {
    int vocab_size = 0;
    int hidden_size = 0;
    int intermediate_size = 0;
    int num_attention_heads = 0;
    int num_key_value_heads = 0;
    int head_dim = 0;
    std::vector<LayerKind> layer_types;
    int sliding_window = 0; ///< tokens that a sliding layer sees, including the newest
    int max_position_embeddings = 0;
    int lru_width = 0;    ///< channels of a recurrent layer
    int lru_blocks = 0;   ///< groups of channels that have their own gates
    int conv1d_width = 0; ///< tokens that the convolution before a recurrence sees, including the newest
    double rope_theta = 10000;
    Pairing rope_pairing = Pairing::neox;
    float rms_norm_eps = 1e-5F;
    bool tie_word_embeddings = true;

    int layers() const { return static_cast<int>(layer_types.size()); }
    int layers(LayerKind kind) const {
        return static_cast<int>(std::count(layer_types.begin(), layer_types.end(), kind));
    }
    int query_size() const { return num_attention_heads * head_dim; }
    int key_value_size() const { return num_key_value_heads * head_dim; }
    int queries_per_key() const { return num_attention_heads / num_key_value_heads; }
};

/// Describes the first inconsistency of a config. Empty if there is none.
inline std::string contradiction(const Config& c) {
    if (c.num_attention_heads % c.num_key_value_heads != 0) {
        return std::to_string(c.num_attention_heads) + " attention heads cannot share "
               + std::to_string(c.num_key_value_heads) + " key-value heads equally";
    }
    if (c.head_dim % 2 != 0) {
        return "the head dimension is " + std::to_string(c.head_dim)
               + ", expected an even number, for rotary positions";
    }
    if (c.layers(LayerKind::recurrent) > 0 && c.lru_width % c.lru_blocks != 0) {
        return std::to_string(c.lru_blocks) + " blocks cannot share " + std::to_string(c.lru_width)
               + " recurrent channels equally";
    }
    return {};
}

} // namespace llama
