// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/score.hpp>
#include <cellar/kernel/attention.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Joins the partial results of blocks of several parts, in the order of the parts, and writes the results. A league
/// has a team for each row of these blocks and head of the keys.
template <class Out, class Team>
class JoinParts {
public:
    AttentionCall<Out> call;
    std::int32_t max_parts;

    CELLAR_FUNCTION std::int64_t bytes() const { return 8 + std::int64_t{8} * max_parts; }

    CELLAR_FUNCTION void operator()(const Team& team) const {
        const AttentionBlock& block =
            block_of<&AttentionBlock::first_joined>(call.blocks, call.block_count, team.league_rank());
        const auto [row, head] = call.heads.divide(team.league_rank() - block.first_joined);
        const int query_head = call.query_head(block, head, row);
        const std::int32_t token = call.token(block, row).token;
        const PartialResults& partial = call.partial;
        float* const largest = static_cast<float*>(team.team_shmem().get_shmem(bytes()));
        float* const weights = largest + block.parts;
        for (int part = team.team_rank(); part < block.parts; part += team.team_size())
            largest[part] = partial.largest_sums[2 * block.partial_row(part, head, call.heads.value(), row)];
        team.team_barrier();
        const float base = largest_of(largest, block.parts);
        for (int part = team.team_rank(); part < block.parts; part += team.team_size())
            weights[part] = softmax_factor(largest[part], base);
        team.team_barrier();
        float sum = 0;
        for (int part = 0; part < block.parts; ++part)
            sum += weights[part] * partial.largest_sums[2 * block.partial_row(part, head, call.heads.value(), row) + 1];
        const SoftmaxEnd end = end_softmax({base, sum}, call.rule.sink(query_head));
        for (int d = team.team_rank(); d < call.value_dim; d += team.team_size()) {
            float value = 0;
            for (int part = 0; part < block.parts; ++part)
                value += weights[part]
                         * partial.values[block.partial_row(part, head, call.heads.value(), row) * call.value_dim + d];
            call.out(token, query_head, d) = static_cast<Out>(value * end.weight);
        }
        if (call.log_sum_exp.pointer != nullptr && team.team_rank() == 0)
            call.log_sum_exp(token, query_head) = end.log_sum_exp;
    }

private:
    CELLAR_FUNCTION static float largest_of(const float* scores, int count) {
        float largest = no_score();
        for (int i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
        return largest;
    }
};

} // namespace cellar::detail::kernel
