// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "gated_network.hpp"
#include "model_folder.hpp"

#include <generate/weights.hpp>
#include <string>
#include <vector>

namespace folder {

/// The feed-forward network of a layer of gpt-oss: a router chooses a few experts for each token, and weighs them.
class Experts final : public FeedForward {
public:
    /// Of the tensors whose names begin with `at`. `chosen`: for each token.
    Experts(const ModelFolder& folder, const std::string& at, int count, int chosen, int hidden, int inner);

    llama::Matrix forward(const llama::Matrix& x) const override;

private:
    int chosen_ = 0;
    llama::Matrix router_;
    llama::RowVector router_bias_;
    std::vector<llama::Matrix> up_; // of each expert, [hidden, 2 * inner]: gates and values by turns
    llama::Matrix up_bias_;
    std::vector<llama::Matrix> down_; // [inner, hidden]
    llama::Matrix down_bias_;
};

} // namespace folder
