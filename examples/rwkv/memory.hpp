// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "model.hpp"
#include <cellar/cellar.hpp>

#include <span>

namespace rwkv {

/// The tensors of `LayerState`.
struct ChannelToken : cellar::StateTensor<1> {}; // [hidden]
struct TimeToken : cellar::StateTensor<1> {};    // [hidden]
struct KeyValue : cellar::StateTensor<3> {};     // [heads, head_dim of values, head_dim of keys]

using Memory = cellar::RecurrentMemory<cellar::States<ChannelToken, TimeToken, KeyValue>>;
using Pass = cellar::PassOf<Memory>;

inline cellar::StateShape state_shape(const Config& c) {
    return {c.layers, {{c.hidden_size}, {c.hidden_size}, {c.heads, c.head_dim(), c.head_dim()}}};
}

/// Runs the tokens of a batch in the pass that was begun for it. The batch may mix sequences. Returns a row of logits
/// for each token.
inline Matrix forward(const Rwkv& model, Pass& pass, std::span<const int> tokens) {
    Matrix x = model.embed(tokens);
    Matrix first_values(x.rows(), x.cols());
    for (int layer = 0; layer < model.config().layers; ++layer) {
        for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
            // The model needs the tokens of a sequence in adjacent rows.
            const auto for_each_row = [&](auto copy) {
                Eigen::Index row = 0;
                for (std::int32_t s = 0; s < micro_batch.sequences(); ++s)
                    for (const std::int32_t token : micro_batch.tokens(s)) copy(row++, token);
            };
            Matrix rows(micro_batch.sequences() * micro_batch.length(), x.cols());
            Matrix values(rows.rows(), rows.cols());
            for_each_row([&](Eigen::Index row, Eigen::Index token) {
                rows.row(row) = x.row(token);
                values.row(row) = first_values.row(token);
            });
            const LayerState state{pass.get<ChannelToken>(layer, micro_batch), pass.get<TimeToken>(layer, micro_batch),
                                   pass.get<KeyValue>(layer, micro_batch)};
            model.layer(layer, state, rows, values);
            pass.put(layer, micro_batch);
            for_each_row([&](Eigen::Index row, Eigen::Index token) {
                x.row(token) = rows.row(row);
                first_values.row(token) = values.row(row);
            });
        }
    }
    return model.classify(x);
}

} // namespace rwkv
