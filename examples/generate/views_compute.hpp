// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "config.hpp"
#include "host_compute.hpp"
#include "weights.hpp"
#include <cellar/cellar.hpp>
#include <cellar/element/convert.hpp>

#include <Eigen/Core>

#include <cmath>
#include <type_traits>

namespace llama {

/// Attention as a program writes it without `attend`: products of Eigen over views of keys and values, with a mask.
/// `generate --compare` measures the two side by side.
class ViewsCompute : public HostCompute {
public:
    explicit ViewsCompute(const Config& config)
        : HostCompute{config},
          kv_heads_{config.num_key_value_heads},
          group_{config.queries_per_key()},
          dim_{config.head_dim} {}

    /// softmax(queries * keys^T / sqrt(head_dim) + mask) * values. Several query heads share a head of keys and values.
    template <class Pass>
    void attend(Pass& pass, int layer, const Rows& queries, Matrix& out) {
        out.resize(queries.extent(0), kv_heads_ * group_ * dim_);
        const auto [keys, values, mask] = pass.template get<float>(layer);
        const Plane hidden{mask.data_handle(), mask.extent(0), mask.extent(1), Stride{mask.stride(0)}};
        for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
            const Head k = head_of(keys, kv_head, keys_);
            const Head v = head_of(values, kv_head, values_);
            for (int head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
                const Plane q{&queries(0, head, 0), queries.extent(0), dim_, Stride{queries.stride(0)}};
                attend(q, k, v, hidden, out.middleCols(head * dim_, dim_));
            }
        }
    }

private:
    using Stride = Eigen::OuterStride<>;
    using Plane = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>; // rows of adjacent floats

    struct Head {
        Plane plane;     // [cells, head_dim]
        bool transposed; // [head_dim, cells]
    };

    /// One head of keys or values: in place if its elements are floats, else converted.
    template <class View>
    static Head head_of(const View& view, int head, Matrix& converted) {
        using Element = typename View::value_type;
        const bool transposed = view.stride(2) != 1; // then the cells are contiguous
        const int row = transposed ? 2 : 0;
        const int column = transposed ? 0 : 2;
        const cellar::StridedView<const Element, 2> lines{
            &view(0, head, 0), {view.extent(row), view.extent(column)}, {view.stride(row), view.stride(column)}};
        if constexpr (std::is_same_v<Element, float>) {
            return {{lines.pointer, lines.extent(0), lines.extent(1), Stride{lines.stride(0)}}, transposed};
        } else {
            converted.resize(lines.extent(0), lines.extent(1));
            cellar::convert(lines, cellar::contiguous_view(converted.data(), converted.rows(), converted.cols()));
            return {{converted.data(), converted.rows(), converted.cols(), Stride{converted.cols()}}, transposed};
        }
    }

    /// Attention of one query head.
    void attend(const Plane& queries, const Head& keys, const Head& values, const Plane& mask, Eigen::Ref<Matrix> out) {
        if (keys.transposed) {
            weights_.noalias() = queries * keys.plane;
        } else {
            weights_.noalias() = queries * keys.plane.transpose();
        }
        weights_ = weights_ / std::sqrt(static_cast<float>(dim_)) + mask;
        softmax_rows(weights_);
        if (values.transposed) {
            out.noalias() = weights_ * values.plane.transpose();
        } else {
            out.noalias() = weights_ * values.plane;
        }
    }

    int kv_heads_;
    int group_;
    int dim_;
    Matrix keys_; // of one head, if they are converted
    Matrix values_;
    Matrix weights_; // [tokens, cells]
};

} // namespace llama
