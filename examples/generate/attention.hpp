// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "weights.hpp"
#include <cellar/base/view.hpp>
#include <cellar/layout/layout.hpp>

#include <Eigen/Core>

#include <type_traits>

namespace llama {

/// Rows at any distance from each other, each of adjacent floats.
using Plane = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;

/// Attention of one head, for all tokens of a batch.
class HeadAttention {
public:
    /// Sets the weights to softmax(queries * keys^T / sqrt(dim) + mask).
    void weigh(const Plane& queries, const Plane& keys, const Plane& mask);

    /// `values` is [history, dim], or [dim, history] if it is transposed.
    void apply(const Plane& values, bool transposed, Eigen::Ref<Matrix> out) const;

private:
    Matrix weights_; // [tokens, history]
};

/// Attention over the views that a cache gives, in the order in which its layout keeps them.
template <cellar::LayoutPolicy Layout>
class ViewAttention {
public:
    explicit ViewAttention(const Config& config)
        : kv_heads_{config.num_key_value_heads}, group_{config.queries_per_key()}, dim_{config.head_dim} {}

    /// Several query heads share a key-value head. Queries and keys are at their positions.
    template <class Keys, class Values>
    void operator()(const Matrix& queries, const Keys& keys, const Values& values,
                    const cellar::StridedView<const float, 2>& mask, Matrix& out) {
        out.resize(queries.rows(), queries.cols());
        const Plane hidden{mask.data_handle(), mask.extent(0), mask.extent(1), Eigen::OuterStride<>{mask.stride(0)}};
        for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
            const Plane k = head_of_keys(keys, kv_head);
            const Plane v = head_of_values(values, kv_head);
            for (int head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
                const Plane q{queries.data() + head * dim_, queries.rows(), dim_,
                              Eigen::OuterStride<>{queries.outerStride()}};
                attention_.weigh(q, k, hidden);
                attention_.apply(v, permuted, out.middleCols(head * dim_, dim_));
            }
        }
    }

private:
    static constexpr bool permuted = Layout::value_mapping::contiguous_cells;

    /// [history, dim]
    template <class Keys>
    Plane head_of_keys(const Keys& keys, int head) {
        return plane(&keys(0, head, 0), keys.extent(0), dim_, keys.stride(0), keys_);
    }

    /// [history, dim], or [dim, history] where the layout permutes the values.
    template <class Values>
    Plane head_of_values(const Values& values, int head) {
        if constexpr (permuted) {
            return plane(&values(0, head, 0), dim_, values.extent(0), values.stride(2), values_);
        } else {
            return plane(&values(0, head, 0), values.extent(0), dim_, values.stride(0), values_);
        }
    }

    /// Floats are read in place; other elements are converted first.
    template <class Element>
    static Plane plane(const Element* first, Eigen::Index rows, Eigen::Index columns, Eigen::Index stride,
                       Matrix& converted) {
        if constexpr (std::is_same_v<Element, float>) {
            return {first, rows, columns, Eigen::OuterStride<>{stride}};
        } else {
            converted.resize(rows, columns);
            for (Eigen::Index row = 0; row < rows; ++row) {
                for (Eigen::Index i = 0; i < columns; ++i) {
                    converted(row, i) = static_cast<float>(first[row * stride + i]);
                }
            }
            return {converted.data(), rows, columns, Eigen::OuterStride<>{columns}};
        }
    }

    int kv_heads_;
    int group_;
    int dim_;
    HeadAttention attention_;
    Matrix keys_; // of one head, where they are not stored as float
    Matrix values_;
};

} // namespace llama
