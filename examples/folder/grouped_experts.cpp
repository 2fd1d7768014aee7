// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "grouped_experts.hpp"

#include <Eigen/Core>

#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

namespace folder {

using llama::Matrix, llama::RowVector;

GroupedExperts::GroupedExperts(const ModelFolder& folder, const std::string& at)
    : chosen_{folder.integer("num_experts_per_tok")},
      groups_{folder.integer("n_group")},
      chosen_groups_{folder.integer("topk_group")},
      factor_{folder.config().value("routed_scaling_factor", 1.0F)},
      sums_to_one_{folder.config().value("norm_topk_prob", true)} {
    const int hidden = folder.integer("hidden_size");
    const int inner = folder.integer("moe_intermediate_size");
    const int count = folder.integer("n_routed_experts");
    if (count % groups_ != 0 || count / groups_ < 2)
        throw std::runtime_error{std::to_string(count) + " experts in " + std::to_string(groups_)
                                 + " groups, expected equal ones of at least 2"};
    router_ = folder.matrix(at + "gate.weight", count, hidden);
    correction_ = folder.vector(at + "gate.e_score_correction_bias", count);
    for (int i = 0; i < count; ++i)
        experts_.emplace_back(folder, at + "experts." + std::to_string(i) + ".", hidden, inner);
    shared_.emplace_back(folder, at + "shared_experts.", hidden, inner * folder.integer("n_shared_experts"));
}

Matrix GroupedExperts::forward(const Matrix& x) const {
    Matrix scores = x * router_.transpose();
    for (float& score : scores.reshaped()) score = 1 / (1 + std::exp(-score));
    Matrix out = shared_[0].forward(x);
    for (Eigen::Index token = 0; token < x.rows(); ++token) {
        const std::vector<int> chosen = choose(scores.row(token) + correction_);
        float sum = 0;
        for (const int expert : chosen) sum += scores(token, expert);
        const float factor = sums_to_one_ ? factor_ / sum : factor_;
        for (const int expert : chosen)
            out.row(token) +=
                factor * scores(token, expert) * experts_[static_cast<std::size_t>(expert)].forward(x.row(token));
    }
    return out;
}

/// Of the groups whose two best experts are the best together.
std::vector<int> GroupedExperts::choose(const RowVector& scores) const {
    const Eigen::Index size = scores.size() / groups_;
    RowVector of_groups(groups_);
    for (int group = 0; group < groups_; ++group) {
        const RowVector own = scores.segment(group * size, size);
        of_groups(group) = 0;
        for (const int expert : largest(own, 2)) of_groups(group) += own(expert);
    }
    RowVector left = RowVector::Constant(scores.size(), -std::numeric_limits<float>::infinity());
    for (const int group : largest(of_groups, chosen_groups_))
        left.segment(group * size, size) = scores.segment(group * size, size);
    return largest(left, chosen_);
}

} // namespace folder
