// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/mpi/detail/rank_values.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cellar::detail {

/// What one rank says about an operation, which all ranks do, or none does.
struct Vote {
    static constexpr std::int32_t yes = -1;
    static constexpr std::int32_t no_memory = -2;

    std::uint64_t calls = 0;    ///< hash of all calls so far
    std::int32_t answer = yes;  ///< or `no_memory`, or a `Reason`
    std::int32_t sequence = -1; ///< of the refusal
    std::int32_t expected = -1;
    std::int32_t member = -1;

    void refuse(const Refusal& refusal) {
        answer = static_cast<std::int32_t>(refusal.reason);
        sequence = refusal.sequence.value;
        expected = refusal.expected.value;
        member = refusal.member;
    }
    Refusal refusal() const {
        return {
            .reason = static_cast<Reason>(answer), .member = member, .sequence = {sequence}, .expected = {expected}};
    }
};

/// Why the operation is not done, the same on all ranks: nothing if all say yes. `votes`: of all ranks.
inline std::optional<mpi::MpiError> error_of_votes(const char* operation, const std::vector<Vote>& votes) {
    const auto of_rank = [&](int rank) { return std::string{operation} + ": rank " + std::to_string(rank); };
    const auto same_calls = [](const Vote& a, const Vote& b) { return a.calls == b.calls; };
    if (const int rank = differing_ranks(votes, same_calls).first; rank >= 0)
        return mpi::MpiError{mpi::MpiReason::differs, rank,
                             of_rank(rank) + " has made other calls than the others, expected the same on all ranks"};
    for (std::size_t i = 0; i < votes.size(); ++i) {
        const Vote& vote = votes[i];
        const int rank = static_cast<int>(i);
        if (vote.answer == Vote::yes) continue;
        if (vote.answer == Vote::no_memory)
            return mpi::MpiError{mpi::MpiReason::no_memory, rank, of_rank(rank) + " could not allocate memory"};
        return mpi::MpiError{mpi::MpiReason::refused, rank, of_rank(rank) + " refuses: " + to_string(vote.refusal()),
                             vote.refusal()};
    }
    return std::nullopt;
}

} // namespace cellar::detail
