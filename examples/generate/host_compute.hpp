// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "recurrence.hpp"
#include "weights.hpp"
#include <cellar/cellar.hpp>
#include <cellar/element/convert.hpp>

#include <Eigen/Core>

#include <type_traits>

namespace llama {

/// Attention and recurrences on the host, with Eigen.
class HostCompute {
public:
    using Backend = cellar::HostBackend;
    using MaskElement = float;
    using Rows = cellar::StridedView<const float, 3>; // [tokens, heads, head_dim]

    explicit HostCompute(const Config& config)
        : heads_{config.num_attention_heads}, kv_heads_{config.num_key_value_heads}, dim_{config.head_dim} {}

    static Backend backend() { return {}; }

    struct Batch {
        Rows queries, keys, values;
    };

    /// Views of the rows. They are in host memory already.
    Batch upload(const Matrix& queries, const Matrix& keys, const Matrix& values) const {
        const auto rows = [&](const Matrix& m, int heads) {
            return cellar::contiguous_view(m.data(), m.rows(), heads, dim_);
        };
        return {rows(queries, heads_), rows(keys, kv_heads_), rows(values, kv_heads_)};
    }
    static void upload(const Matrix& /*x*/) {}
    static void download(Matrix& /*x*/) {}

    // [attend]
    /// softmax(queries * keys^T / sqrt(head_dim) + mask) * values. Several query heads share a head of keys and values.
    template <class Keys, class Values, class Mask>
    void attend(const Rows& queries, const cellar::History<Keys, Values, Mask>& history, Matrix& out) {
        out.resize(queries.extent(0), heads_ * dim_);
        const auto& [keys, values, mask] = history;
        const Plane hidden{mask.data_handle(), mask.extent(0), mask.extent(1), Stride{mask.stride(0)}};
        const int group = heads_ / kv_heads_;
        for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
            const Head k = head_of(keys, kv_head, keys_);
            const Head v = head_of(values, kv_head, values_);
            for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
                const Plane q{&queries(0, head, 0), queries.extent(0), dim_, Stride{queries.stride(0)}};
                attend(q, k, v, hidden, out.middleCols(head * dim_, dim_));
            }
        }
    }
    // [/attend]

    template <class Inputs, class State>
    static void recur(int /*layer*/, const RecurrenceWeights& w, const cellar::MicroBatch& micro_batch,
                      const Inputs& inputs, const State& hidden, Matrix& x) {
        llama::recur(w, {{inputs.pointer, inputs.extent(1), inputs.extent(2)}, {hidden.pointer, hidden.extent(1)}},
                     x.middleRows(micro_batch.tokens(0).front(), micro_batch.length()));
    }

private:
    using Stride = Eigen::OuterStride<>;
    using Plane = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>; // rows of adjacent floats

    struct Head {
        Plane plane;     // [cells, head_dim]
        bool transposed; // [head_dim, cells]
    };

    /// One head of keys or values, as it lies in memory: in place if its elements are floats, else converted.
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
    void attend(const Plane& queries, const Head& keys, const Head& values, const Plane& mask, Eigen::Ref<Matrix> out);

    int heads_;
    int kv_heads_;
    int dim_;
    Matrix keys_; // of one head, if they are converted
    Matrix values_;
    Matrix weights_; // [tokens, cells]
};

} // namespace llama
