// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "model_folder.hpp"
#include <cellar/models/run_time_description.hpp>

#include <functional>
#include <generate/weights.hpp>
#include <string>
#include <vector>

namespace folder {

/// Attention of DeepSeek V3 (MLA, arXiv:2405.04434), in the space of what is stored: a latent and rotary elements for
/// each token, one head for all queries.
class LatentAttention {
public:
    LatentAttention() = default;
    /// Of the tensors whose names begin with `at`.
    LatentAttention(const ModelFolder& folder, const std::string& at, const cellar::models::LayerDescription& layer,
                    float epsilon);

    /// Elements of a token's results.
    int width() const { return heads_ * value_; }
    bool empty() const { return compress_.size() == 0; }

    /// Of x [tokens, hidden]: [tokens, heads * value_dim]. `rotate(rows)` rotates rows of heads as they are stored;
    /// `attend(queries, keys)` stores keys [tokens, stored], and attends for queries [tokens, heads * stored]: its
    /// result is [tokens, heads * latent].
    llama::Matrix
    forward(const llama::Matrix& x, const std::function<void(llama::Matrix&)>& rotate,
            const std::function<llama::Matrix(const llama::Matrix& queries, const llama::Matrix& keys)>& attend) const;

private:
    int heads_ = 0;
    int latent_ = 0;
    int rotary_ = 0;
    int plain_ = 0; // of a query, elements that are not rotated
    int value_ = 0;
    float epsilon_ = 0;
    llama::Matrix query_down_; // empty: queries are not compressed
    llama::RowVector query_norm_;
    llama::Matrix query_;
    llama::Matrix compress_; // to what is stored
    llama::RowVector latent_norm_;
    llama::Matrix expand_; // of each head, the rows for keys, and those for values: [heads * (plain + value), latent]
};

} // namespace folder
