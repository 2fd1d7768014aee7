// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <optional>
#include <string>
#include <vector>

namespace cellar::detail {

/// A hash of operations and their arguments, in their order.
class CallHash {
public:
    void add(std::uint64_t x) {
        value_ = (value_ ^ x) * 0x9E3779B97F4A7C15U;
        value_ ^= value_ >> 32;
    }
    std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0x243F6A8885A308D3U;
};

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

/// An error of MPI in a collective operation, which does not say on which rank.
inline mpi::MpiError collective_error(const char* operation, int code) {
    const bool lost = is_process_failure(code);
    return {lost ? mpi::MpiReason::lost : mpi::MpiReason::failed, -1,
            std::string{operation} + (lost ? ": a rank has died (" : ": MPI failed (") + text_of_mpi_error(code) + ")"};
}

/// All ranks do an operation, or none does. Every rank gets the same answer.
class Agreement {
public:
    explicit Agreement(int ranks) : votes_(static_cast<std::size_t>(ranks)) {}

    /// Collective: one small message to every rank. Nothing if all ranks say yes.
    std::optional<mpi::MpiError> reach(const mpi::Communicator& comm, const char* operation, const Vote& own) {
        constexpr int bytes = sizeof(Vote);
        const int code = MPI_Allgather(&own, bytes, MPI_BYTE, votes_.data(), bytes, MPI_BYTE, comm.handle());
        if (code != MPI_SUCCESS) return collective_error(operation, code);
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
};

} // namespace cellar::detail
