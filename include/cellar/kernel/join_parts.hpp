// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/divisor.hpp>

#include <cmath>
#include <cstdint>

namespace cellar::detail::kernel {

/// Joins the partial results of blocks of several parts, in the order of the parts, and writes the results. A league
/// has a team for each row of these blocks and head of the keys.
template <class Out, class Team>
class JoinParts {
public:
    AttentionResults<Out> results;
    PartialResults partial;
    const SeenToken* tokens;
    const AttentionBlock* blocks;
    std::int32_t block_count;
    std::int32_t value_dim;
    std::int32_t max_parts;
    Divisor heads; ///< of the keys
    Divisor group; ///< query heads for each of them

    CELLAR_FUNCTION std::int64_t bytes() const { return 8 + std::int64_t{8} * max_parts; }

    CELLAR_FUNCTION void operator()(const Team& team) const {
        const AttentionBlock& block = block_of<&AttentionBlock::first_joined>(blocks, block_count, team.league_rank());
        const auto [row, head] = heads.divide(team.league_rank() - block.first_joined);
        const auto [of_block, of_group] = group.divide(block.first_row + row);
        const int query_head = head * group.value() + of_group;
        const std::int32_t token = tokens[block.first_token + of_block].token;
        float* const largest = static_cast<float*>(team.team_shmem().get_shmem(bytes()));
        float* const weights = largest + block.parts;
        for (int part = team.team_rank(); part < block.parts; part += team.team_size())
            largest[part] = partial.largest_sums[2 * block.partial_row(part, head, heads.value(), row)];
        team.team_barrier();
        const float base = largest_of(largest, block.parts);
        for (int part = team.team_rank(); part < block.parts; part += team.team_size())
            weights[part] = largest[part] == no_score() ? 0 : expf(largest[part] - base);
        team.team_barrier();
        float sum = 0;
        for (int part = 0; part < block.parts; ++part)
            sum += weights[part] * partial.largest_sums[2 * block.partial_row(part, head, heads.value(), row) + 1];
        const auto ending = results.end(base, sum, query_head);
        for (int d = team.team_rank(); d < value_dim; d += team.team_size()) {
            float value = 0;
            for (int part = 0; part < block.parts; ++part)
                value +=
                    weights[part] * partial.values[block.partial_row(part, head, heads.value(), row) * value_dim + d];
            results.out(token, query_head, d) = static_cast<Out>(value * ending.weight);
        }
        if (results.log_sum_exp.data != nullptr && team.team_rank() == 0)
            results.log_sum_exp(token, query_head, 0) = ending.log_sum_exp;
    }

private:
    CELLAR_FUNCTION static float largest_of(const float* scores, int count) {
        float largest = no_score();
        for (int i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
        return largest;
    }
};

} // namespace cellar::detail::kernel
