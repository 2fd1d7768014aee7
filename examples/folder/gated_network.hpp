// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "model_folder.hpp"

#include <generate/weights.hpp>
#include <string>
#include <vector>

namespace folder {

/// The feed-forward network of a layer.
class FeedForward {
public:
    virtual ~FeedForward() = default;
    /// Of x [tokens, hidden], and the same shape.
    virtual llama::Matrix forward(const llama::Matrix& x) const = 0;
};

/// A feed-forward network with gates.
struct GatedNetwork {
    llama::Matrix gate, up, down;

    GatedNetwork(const ModelFolder& folder, const std::string& at, int hidden, int inner);
    /// The first half of the rows of `gate_up` is the gate.
    GatedNetwork(const llama::Matrix& gate_up, llama::Matrix output);

    llama::Matrix forward(const llama::Matrix& x) const;
};

/// The places of the largest numbers, the largest one first.
std::vector<int> largest(const llama::RowVector& numbers, int count);

} // namespace folder
