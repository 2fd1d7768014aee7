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

/// What gates do to their inputs. `gelu`: by a hyperbolic tangent.
enum class Activation { silu, gelu };

/// A feed-forward network with gates.
class GatedNetwork final : public FeedForward {
public:
    GatedNetwork(llama::Matrix gate, llama::Matrix up, llama::Matrix down, Activation activation = Activation::silu);
    /// The first half of the rows of `gate_up` is the gate.
    GatedNetwork(const llama::Matrix& gate_up, llama::Matrix down);
    /// Of the tensors gate_proj, up_proj and down_proj, whose names begin with `at`.
    GatedNetwork(const ModelFolder& folder, const std::string& at, int hidden, int inner);

    llama::Matrix forward(const llama::Matrix& x) const override;

private:
    llama::Matrix gate_, up_, down_;
    Activation activation_;
};

/// A feed-forward network whose inner values are the squares of those above 0, and else 0.
class SquaredNetwork final : public FeedForward {
public:
    SquaredNetwork(llama::Matrix up, llama::Matrix down);

    llama::Matrix forward(const llama::Matrix& x) const override;

private:
    llama::Matrix up_, down_;
};

/// The places of the largest numbers, the largest one first.
std::vector<int> largest(const llama::RowVector& numbers, int count);

} // namespace folder
