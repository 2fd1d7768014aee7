// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "gated_network.hpp"
#include "model_folder.hpp"

#include <generate/weights.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace folder {

/// A feed-forward network with experts, of which a router chooses a few for each token and weighs them; maybe also with
/// a network for all tokens.
class RoutedExperts final : public FeedForward {
public:
    /// Of a layer of Granite 4, which may have no experts. The layer's tensors have names that begin with `at`.
    static RoutedExperts of_granite(const ModelFolder& folder, const std::string& at);
    /// Of a layer of Qwen3-Next.
    static RoutedExperts of_qwen(const ModelFolder& folder, const std::string& at);
    /// Of a layer of Jamba, which has no network for all tokens.
    static RoutedExperts of_jamba(const ModelFolder& folder, const std::string& at);
    /// Of a layer of DeepSeek V3 (arXiv:2412.19437), whose router chooses groups of experts first.
    static RoutedExperts of_deepseek(const ModelFolder& folder, const std::string& at);

    llama::Matrix forward(const llama::Matrix& x) const override;

private:
    RoutedExperts() = default;
    explicit RoutedExperts(GatedNetwork shared) : shared_{std::move(shared)} {}
    void read_experts(const ModelFolder& folder, const std::string& at, const char* router, int count, int inner);
    llama::Matrix scores(const llama::Matrix& x) const;
    std::vector<int> choose(const llama::RowVector& scores) const;

    int chosen_ = 0;
    int groups_ = 0; // 0: none, and the scores are a softmax
    int chosen_groups_ = 0;
    float factor_ = 1;
    bool sums_to_one_ = true;
    std::optional<GatedNetwork> shared_;
    llama::RowVector shared_gate_; // empty: none
    llama::Matrix router_;
    llama::RowVector correction_; // of scores, for the choice alone
    std::vector<GatedNetwork> experts_;
};

} // namespace folder
