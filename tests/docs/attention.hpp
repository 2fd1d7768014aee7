// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// [header]
#include <memory>
#include <vector>

/// The attention of a model, with its cache. Files that include this include nothing of cellar.
class Attention {
public:
    Attention(int layers, int kv_heads, int head_dim);
    ~Attention();

    /// The next token's sum over the keys that it sees.
    float step(const std::vector<float>& rows);

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};
// [/header]
