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

using Memory = cellar::RecurrentState<cellar::States<ChannelToken, TimeToken, KeyValue>>;
using Pass = cellar::PassOf<Memory>;

inline cellar::StateShape state_shape(const Config& c) {
    return {c.layers, {{c.hidden_size}, {c.hidden_size}, {c.heads, c.head_dim(), c.head_dim()}}};
}

/// Runs the tokens of a batch, of as many sequences as you like, in a pass that was begun for them. A row of logits for
/// each token.
inline Matrix forward(const Rwkv& model, Pass& pass, std::span<const int> tokens) {
    Matrix x = model.embed(tokens);
    Matrix first_values(x.rows(), x.cols());
    for (int layer = 0; layer < model.config().layers; ++layer) {
        for (const cellar::Part& part : pass.parts()) {
            // The model wants the tokens of one sequence together.
            const auto each = [&](auto copy) {
                Eigen::Index row = 0;
                for (std::int32_t s = 0; s < part.sequences(); ++s)
                    for (const std::int32_t token : part.tokens(s)) copy(row++, token);
            };
            Matrix of_part(part.sequences() * part.length(), x.cols());
            Matrix values_of_part(of_part.rows(), of_part.cols());
            each([&](Eigen::Index row, Eigen::Index token) {
                of_part.row(row) = x.row(token);
                values_of_part.row(row) = first_values.row(token);
            });
            const LayerState state{pass.get<ChannelToken>(layer, part), pass.get<TimeToken>(layer, part),
                                   pass.get<KeyValue>(layer, part)};
            model.layer(layer, state, of_part, values_of_part);
            pass.put(layer, part);
            each([&](Eigen::Index row, Eigen::Index token) {
                x.row(token) = of_part.row(row);
                first_values.row(token) = values_of_part.row(row);
            });
        }
    }
    return model.classify(x);
}

} // namespace rwkv
