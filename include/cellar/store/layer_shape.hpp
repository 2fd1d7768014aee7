// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// What one layer remembers of a token.
struct LayerShape {
    int kv_heads;
    int key_dim;
    int value_dim;   ///< 0: keys alone (a latent that is both, as in DeepSeek's MLA)
    int shares = -1; ///< that earlier layer's memory is read instead of an own one; -1: an own one
};

} // namespace cellar
