// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/weights.hpp"
#include <cellar/mpi/shares.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace llama {

/// The weights of some heads of every layer, and of some channels of the feed-forward networks. The outputs of all
/// ranks add up to those of the whole model.
inline Weights part_of_heads(Weights whole, const cellar::mpi::HeadShare& heads, const cellar::mpi::Share& channels) {
    const int dim = whole.config.head_dim;
    const auto rows = [](Matrix& m, cellar::mpi::Share share, int each) {
        m = m.middleRows(share.first * each, share.count * each).eval();
    };
    const auto columns = [](Matrix& m, cellar::mpi::Share share, int each) {
        m = m.middleCols(share.first * each, share.count * each).eval();
    };
    for (LayerWeights& layer : whole.layers) {
        rows(layer.attention.query, heads.query, dim);
        rows(layer.attention.key, heads.kv, dim);
        rows(layer.attention.value, heads.kv, dim);
        columns(layer.attention.output, heads.query, dim);
        rows(layer.feed_forward.gate, channels, 1);
        rows(layer.feed_forward.up, channels, 1);
        columns(layer.feed_forward.down, channels, 1);
    }
    whole.config.num_attention_heads = heads.query.count;
    whole.config.num_key_value_heads = heads.kv.count;
    whole.config.intermediate_size = channels.count;
    return whole;
}

/// The weights of some layers. The embedding and the classifier stay.
inline Weights part_of_layers(Weights whole, const cellar::mpi::Share& layers) {
    const auto keep = [&](auto& list) { list = {list.begin() + layers.first, list.begin() + layers.end()}; };
    keep(whole.config.layer_types);
    keep(whole.layers);
    return whole;
}

} // namespace llama
