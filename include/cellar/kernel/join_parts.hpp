// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/score.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/divisor.hpp>

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
        const Divisor::Quotient place = call.heads.divide(team.league_rank() - block.first_joined);
        const std::int32_t row = place.quotient;
        const std::int32_t head = place.remainder;
        const PartialResults& partial = call.partial;
        const auto of_part = [&](int part) { return block.partial_row(part, head, call.heads.value(), row); };
        float* const largest = static_cast<float*>(team.team_shmem().get_shmem(bytes()));
        float* const weights = largest + block.parts;
        for (int part = team.team_rank(); part < block.parts; part += team.team_size())
            largest[part] = partial.sums[of_part(part)].largest;
        team.team_barrier();
        const float base = largest_of(largest, block.parts);
        for (int part = team.team_rank(); part < block.parts; part += team.team_size())
            weights[part] = softmax_factor(largest[part], base);
        team.team_barrier();
        float sum = 0;
        for (int part = 0; part < block.parts; ++part) sum += weights[part] * partial.sums[of_part(part)].sum;
        call.write(team, call.token(block, row).token, call.query_head(block, head, row), {base, sum}, [&](int d) {
            float value = 0;
            for (int part = 0; part < block.parts; ++part)
                value += weights[part] * partial.values[of_part(part) * call.value_dim + d];
            return value;
        });
    }

private:
    CELLAR_FUNCTION static float largest_of(const float* scores, int count) {
        float largest = no_score();
        for (int i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
        return largest;
    }
};

} // namespace cellar::detail::kernel
