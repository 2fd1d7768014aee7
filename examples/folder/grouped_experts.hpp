// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "gated_network.hpp"
#include "model_folder.hpp"

#include <generate/weights.hpp>
#include <string>
#include <vector>

namespace folder {

/// The feed-forward network of a layer of DeepSeek V3 (arXiv:2412.19437): a router chooses groups of experts for each
/// token, and a few experts of these; one network serves all tokens.
class GroupedExperts final : public FeedForward {
public:
    /// Of the tensors whose names begin with `at`.
    GroupedExperts(const ModelFolder& folder, const std::string& at);

    llama::Matrix forward(const llama::Matrix& x) const override;

private:
    std::vector<int> choose(const llama::RowVector& scores) const;

    int chosen_ = 0;
    int groups_ = 0;
    int chosen_groups_ = 0;
    float factor_ = 1;
    bool sums_to_one_ = true;
    llama::Matrix router_;
    llama::RowVector correction_; // for the choice alone
    std::vector<GatedNetwork> experts_;
    std::vector<GatedNetwork> shared_; // one
};

} // namespace folder
