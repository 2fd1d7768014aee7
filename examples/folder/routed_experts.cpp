// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "routed_experts.hpp"

#include <Eigen/Core>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <generate/arithmetic.hpp>
#include <limits>
#include <stdexcept>

namespace folder {

using llama::Matrix, llama::RowVector;

RoutedExperts RoutedExperts::of_granite(const ModelFolder& folder, const std::string& at) {
    const int hidden = folder.integer("hidden_size");
    const int shared = folder.integer("shared_intermediate_size");
    RoutedExperts read{{folder.matrix(at + "shared_mlp.input_linear.weight", 2 * std::int64_t{shared}, hidden),
                        folder.matrix(at + "shared_mlp.output_linear.weight", hidden, shared)}};
    const std::string experts = at + "block_sparse_moe.";
    if (!folder.has(experts + "router.layer.weight")) return read;
    const int inner = folder.integer("intermediate_size");
    const int count = folder.integer("num_local_experts");
    read.chosen_ = folder.integer("num_experts_per_tok");
    read.router_ = folder.matrix(experts + "router.layer.weight", count, hidden);
    const auto inputs = folder.matrices(experts + "input_linear.weight", count, 2 * std::int64_t{inner}, hidden);
    const auto outputs = folder.matrices(experts + "output_linear.weight", count, hidden, inner);
    for (std::size_t i = 0; i < inputs.size(); ++i) read.experts_.emplace_back(inputs[i], outputs[i]);
    return read;
}

RoutedExperts RoutedExperts::of_qwen(const ModelFolder& folder, const std::string& at) {
    const int hidden = folder.integer("hidden_size");
    RoutedExperts read{
        GatedNetwork{folder, at + "mlp.shared_expert.", hidden, folder.integer("shared_expert_intermediate_size")}};
    read.shared_gate_ = folder.matrix(at + "mlp.shared_expert_gate.weight", 1, hidden);
    read.sums_to_one_ = folder.config().value("norm_topk_prob", true);
    read.read_experts(folder, at + "mlp.", "gate.weight", folder.integer("num_experts"),
                      folder.integer("moe_intermediate_size"));
    return read;
}

RoutedExperts RoutedExperts::of_jamba(const ModelFolder& folder, const std::string& at) {
    RoutedExperts read;
    read.sums_to_one_ = false;
    read.read_experts(folder, at + "feed_forward.", "router.weight", folder.integer("num_experts"),
                      folder.integer("intermediate_size"));
    return read;
}

RoutedExperts RoutedExperts::of_deepseek(const ModelFolder& folder, const std::string& at) {
    const int hidden = folder.integer("hidden_size");
    const int inner = folder.integer("moe_intermediate_size");
    const int count = folder.integer("n_routed_experts");
    RoutedExperts read{
        GatedNetwork{folder, at + "shared_experts.", hidden, inner * folder.integer("n_shared_experts")}};
    read.groups_ = folder.integer("n_group");
    read.chosen_groups_ = folder.integer("topk_group");
    read.factor_ = folder.config().value("routed_scaling_factor", 1.0F);
    read.sums_to_one_ = folder.config().value("norm_topk_prob", true);
    if (count % read.groups_ != 0 || count / read.groups_ < 2)
        throw std::runtime_error{std::to_string(count) + " experts in " + std::to_string(read.groups_)
                                 + " groups, expected equal ones of at least 2"};
    read.correction_ = folder.vector(at + "gate.e_score_correction_bias", count);
    read.read_experts(folder, at, "gate.weight", count, inner);
    return read;
}

void RoutedExperts::read_experts(const ModelFolder& folder, const std::string& at, const char* router, int count,
                                 int inner) {
    const int hidden = folder.integer("hidden_size");
    chosen_ = folder.integer("num_experts_per_tok");
    router_ = folder.matrix(at + router, count, hidden);
    for (int i = 0; i < count; ++i)
        experts_.emplace_back(folder, at + "experts." + std::to_string(i) + ".", hidden, inner);
}

Matrix RoutedExperts::forward(const Matrix& x) const {
    Matrix out = shared_ ? shared_->forward(x) : Matrix::Zero(x.rows(), x.cols());
    if (shared_gate_.size() != 0)
        for (Eigen::Index token = 0; token < x.rows(); ++token)
            out.row(token) /= 1 + std::exp(-x.row(token).dot(shared_gate_));
    if (experts_.empty()) return out;
    const Matrix weights = scores(x);
    for (Eigen::Index token = 0; token < x.rows(); ++token) {
        const std::vector<int> chosen = choose(weights.row(token));
        float sum = 0;
        for (const int expert : chosen) sum += weights(token, expert);
        const float factor = sums_to_one_ ? factor_ / sum : factor_;
        for (const int expert : chosen)
            out.row(token) +=
                factor * weights(token, expert) * experts_[static_cast<std::size_t>(expert)].forward(x.row(token));
    }
    return out;
}

Matrix RoutedExperts::scores(const Matrix& x) const {
    Matrix scores = x * router_.transpose();
    if (groups_ == 0) {
        llama::softmax_rows(scores);
    } else {
        for (float& score : scores.reshaped()) score = 1 / (1 + std::exp(-score));
    }
    return scores;
}

/// The best ones; with groups, of those whose two best experts are the best together.
std::vector<int> RoutedExperts::choose(const RowVector& scores) const {
    if (groups_ == 0) return largest(scores, chosen_);
    const RowVector corrected = scores + correction_;
    const Eigen::Index size = scores.size() / groups_;
    RowVector of_groups(groups_);
    for (int group = 0; group < groups_; ++group) {
        const RowVector own = corrected.segment(group * size, size);
        of_groups(group) = 0;
        for (const int expert : largest(own, 2)) of_groups(group) += own(expert);
    }
    RowVector left = RowVector::Constant(scores.size(), -std::numeric_limits<float>::infinity());
    for (const int group : largest(of_groups, chosen_groups_))
        left.segment(group * size, size) = corrected.segment(group * size, size);
    return largest(left, chosen_);
}

} // namespace folder
