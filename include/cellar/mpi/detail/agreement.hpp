// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// What one rank says about an operation.
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

/// All ranks do an operation, or none does. Every rank gets the same answer.
class Agreement {
public:
    explicit Agreement(int ranks) : votes_(static_cast<std::size_t>(ranks)), exchange_{ranks, 0x1b05} {}

    /// Collective: one small message to every rank. Blocks for `seconds` at most; 0: without limit. After an error, it
    /// must not be called again.
    std::optional<mpi::MpiError> vote(const mpi::Communicator& comm, const char* operation, const Vote& own,
                                      double seconds) {
        Vote& sent = votes_[static_cast<std::size_t>(comm.rank())];
        sent = own;
        constexpr int bytes = sizeof(Vote);
        for (int rank = 0; rank < comm.size(); ++rank) {
            if (rank == comm.rank()) continue;
            exchange_.receive(comm, rank, &votes_[static_cast<std::size_t>(rank)], bytes, MPI_BYTE);
            exchange_.send(comm, rank, &sent, bytes, MPI_BYTE);
        }
        auto error = exchange_.finish(operation, seconds);
        if (error && exchange_.uses_memory()) Exchange::keep(std::move(votes_));
        return error;
    }

    /// After `vote`, the same on all ranks: nothing if all say yes.
    std::optional<mpi::MpiError> refusal(const char* operation) const {
        if (const int rank = differing(); rank >= 0)
            return mpi::MpiError{mpi::MpiReason::differs, rank,
                                 std::string{operation} + ": rank " + std::to_string(rank)
                                     + " has made other calls than the others, expected the same on all ranks"};
        for (std::size_t rank = 0; rank < votes_.size(); ++rank)
            if (votes_[rank].answer != Vote::yes) return error_of(operation, static_cast<int>(rank));
        return std::nullopt;
    }

private:
    // The first rank whose calls are not those of the most ranks; -1 if all are the same.
    int differing() const {
        std::int64_t most = 0;
        std::uint64_t usual = 0;
        for (const Vote& vote : votes_) {
            const auto same = std::count_if(votes_.begin(), votes_.end(),
                                            [&](const Vote& other) { return other.calls == vote.calls; });
            if (same == std::ssize(votes_)) return -1;
            if (same > most) {
                most = same;
                usual = vote.calls;
            }
        }
        const auto found =
            std::find_if(votes_.begin(), votes_.end(), [&](const Vote& vote) { return vote.calls != usual; });
        return static_cast<int>(found - votes_.begin());
    }

    mpi::MpiError error_of(const char* operation, int rank) const {
        const Vote& vote = votes_[static_cast<std::size_t>(rank)];
        const std::string where = std::string{operation} + ": rank " + std::to_string(rank);
        if (vote.answer == Vote::no_memory)
            return {mpi::MpiReason::no_memory, rank, where + " could not allocate memory"};
        return {mpi::MpiReason::refused, rank, where + " refuses: " + to_string(vote.refusal()), vote.refusal()};
    }

    std::vector<Vote> votes_;
    Exchange exchange_;
};

} // namespace cellar::detail
