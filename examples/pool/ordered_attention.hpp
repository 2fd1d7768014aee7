// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/arithmetic.hpp"
#include "generate/config.hpp"
#include "generate/weights.hpp"
#include <cellar/base/ids.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>

namespace llama {

/// Attention of one sequence in the order of positions. Cells that hold the same tokens in another order, or next to
/// others, give the same bits.
class OrderedAttention {
public:
    explicit OrderedAttention(const Config& config)
        : heads_{config.num_attention_heads}, kv_heads_{config.num_key_value_heads}, dim_{config.head_dim} {}

    /// The rows of `queries` are tokens of sequence s from position `first` on. `keys` and `values` are those of the
    /// pass. A token sees `window` positions, including its own.
    template <class Pass, class Cache>
    void operator()(const Cache& cache, Pass& pass, int layer, cellar::Sequence s, int first, int window,
                    const Eigen::Ref<const Matrix>& queries, Eigen::Ref<Matrix> out) {
        const auto keys = pass.keys(layer);
        const auto values = pass.values(layer);
        const int oldest = std::max(0, first - window + 1);
        const Eigen::Index seen = first + queries.rows() - oldest;
        for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
            keys_.resize(seen, dim_);
            values_.resize(seen, dim_);
            cache.visit_cells(s, [&](cellar::Position position, cellar::Cell cell, int count) {
                for (int i = std::max(0, oldest - position.value); i < count; ++i) {
                    const int row = position.value + i - oldest;
                    const int from = cell + i - pass.history().first;
                    copy(keys, from, kv_head, keys_.row(row));
                    copy(values, from, kv_head, values_.row(row));
                }
            });
            const int group = heads_ / kv_heads_;
            for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
                attend(queries.middleCols(head * dim_, dim_), first - oldest, window,
                       out.middleCols(head * dim_, dim_));
        }
    }

private:
    template <class View>
    static void copy(const View& from, int cell, int head, Eigen::Ref<RowVector> to) {
        for (Eigen::Index i = 0; i < to.size(); ++i) to(i) = static_cast<float>(from(cell, head, i));
    }

    /// Attention of one head. `before` is how many rows of keys lie before the first token.
    void attend(const Eigen::Ref<const Matrix>& queries, int before, int window, Eigen::Ref<Matrix> out) {
        for (Eigen::Index token = 0; token < queries.rows(); ++token) {
            const Eigen::Index end = before + token + 1;
            const Eigen::Index begin = std::max<Eigen::Index>(0, end - window);
            const Eigen::Index count = end - begin;
            weights_.resize(1, count);
            weights_.row(0).noalias() = queries.row(token) * keys_.middleRows(begin, count).transpose();
            weights_ /= std::sqrt(static_cast<float>(dim_));
            softmax_rows(weights_);
            out.row(token).noalias() = weights_.row(0) * values_.middleRows(begin, count);
        }
    }

    int heads_;
    int kv_heads_;
    int dim_;
    Matrix keys_; // [positions, dim] of one head
    Matrix values_;
    Matrix weights_; // [1, positions]
};

} // namespace llama
