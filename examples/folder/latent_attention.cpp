// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "latent_attention.hpp"

#include <Eigen/Core>

#include <generate/arithmetic.hpp>

namespace folder {

using llama::Matrix;

LatentAttention::LatentAttention(const ModelFolder& folder, const std::string& at,
                                 const cellar::models::LayerDescription& layer, float epsilon)
    : heads_{layer.heads},
      latent_{layer.rope.begin},
      rotary_{layer.rope.dims},
      plain_{folder.integer("qk_nope_head_dim")},
      value_{folder.integer("v_head_dim")},
      epsilon_{epsilon} {
    const int hidden = folder.integer("hidden_size");
    const int queries = heads_ * (plain_ + rotary_);
    if (folder.has(at + "q_a_proj.weight")) {
        const int rank = folder.integer("q_lora_rank");
        query_down_ = folder.matrix(at + "q_a_proj.weight", rank, hidden);
        query_norm_ = folder.vector(at + "q_a_layernorm.weight", rank);
        query_ = folder.matrix(at + "q_b_proj.weight", queries, rank);
    } else {
        query_ = folder.matrix(at + "q_proj.weight", queries, hidden);
    }
    compress_ = folder.matrix(at + "kv_a_proj_with_mqa.weight", latent_ + rotary_, hidden);
    latent_norm_ = folder.vector(at + "kv_a_layernorm.weight", latent_);
    expand_ = folder.matrix(at + "kv_b_proj.weight", std::int64_t{heads_} * (plain_ + value_), latent_);
}

Matrix LatentAttention::forward(const Matrix& x, const std::function<void(Matrix&)>& rotate,
                                const std::function<Matrix(const Matrix& queries, const Matrix& keys)>& attend) const {
    Matrix normed;
    Matrix q = x * (query_down_.size() == 0 ? query_ : query_down_).transpose();
    if (query_down_.size() != 0) {
        llama::rms_norm(q, query_norm_, epsilon_, normed);
        q = normed * query_.transpose();
    }
    Matrix keys = x * compress_.transpose();
    llama::rms_norm(keys.leftCols(latent_), latent_norm_, epsilon_, normed);
    keys.leftCols(latent_) = normed;
    const int stored = latent_ + rotary_;
    Matrix queries(x.rows(), heads_ * stored);
    for (int head = 0; head < heads_; ++head) {
        const Eigen::Index from = head * (plain_ + rotary_);
        const auto expand_keys = expand_.middleRows(head * (plain_ + value_), plain_);
        queries.middleCols(head * stored, latent_) = q.middleCols(from, plain_) * expand_keys;
        queries.middleCols(head * stored + latent_, rotary_) = q.middleCols(from + plain_, rotary_);
    }
    rotate(queries);
    rotate(keys);
    const Matrix latents = attend(queries, keys);
    Matrix out(x.rows(), heads_ * value_);
    for (int head = 0; head < heads_; ++head) {
        const auto expand_values = expand_.middleRows(head * (plain_ + value_) + plain_, value_);
        out.middleCols(head * value_, value_) = latents.middleCols(head * latent_, latent_) * expand_values.transpose();
    }
    return out;
}

} // namespace folder
