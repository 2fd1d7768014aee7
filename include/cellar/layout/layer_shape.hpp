// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// The keys and values of one token in one layer.
struct LayerShape {
    int kv_heads;
    int key_dim;
    int value_dim;         ///< 0: the layer stores keys alone (MLA's latent, which is key and value at once)
    int shares_layer = -1; ///< the index of an earlier layer whose memory this one reads; -1: it has its own
};

} // namespace cellar
