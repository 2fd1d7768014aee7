// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "recurrence.hpp"
#include "weights.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

namespace llama {

/// Attention and recurrences on the host.
class HostCompute {
public:
    using Backend = cellar::HostBackend;
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

    /// softmax(queries * keys^T / sqrt(head_dim)) * values, over the cells that each token sees.
    template <class Pass>
    void attend(Pass& pass, int layer, const Rows& queries, Matrix& out) const {
        out.resize(queries.extent(0), heads_ * dim_);
        cellar::attend(pass, layer, queries, cellar::contiguous_view(out.data(), out.rows(), heads_, dim_));
    }

    template <class Inputs, class State>
    static void recur(int /*layer*/, const RecurrenceWeights& w, const cellar::MicroBatch& micro_batch,
                      const Inputs& inputs, const State& hidden, Matrix& x) {
        llama::recur(w, {{inputs.pointer, inputs.extent(1), inputs.extent(2)}, {hidden.pointer, hidden.extent(1)}},
                     x.middleRows(micro_batch.tokens(0).front(), micro_batch.length()));
    }

private:
    int heads_;
    int kv_heads_;
    int dim_;
};

} // namespace llama
