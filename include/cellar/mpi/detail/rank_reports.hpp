// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The operations that ranks do together.
enum class JointOperation : std::int32_t {
    none,
    begin,
    reserve,
    copy_prefix,
    remove,
    snapshot,
    restore,
    merge,
    split,
    schedule,
    unschedule,
    page_out,
    page_in,
    defragment,
    compare
};

inline const char* name_of(JointOperation operation) {
    constexpr const char* names[] = {"nothing",    "begin",    "reserve", "copy_prefix", "remove",
                                     "snapshot",   "restore",  "merge",   "split",       "schedule",
                                     "unschedule", "page_out", "page_in", "defragment",  "compare"};
    return names[static_cast<std::size_t>(operation)];
}

/// One call: what is done, and with which numbers.
struct JointCall {
    JointOperation operation = JointOperation::none;
    std::int32_t count = 0; ///< of the arguments
    std::array<std::int32_t, 4> arguments{};
    std::uint64_t batch = 0; ///< its hash

    bool operator==(const JointCall&) const = default;
};

/// `remove(0, 3, 5)`.
inline std::string text_of(const JointCall& call) {
    std::string text = name_of(call.operation);
    if (call.operation == JointOperation::none) return text;
    for (std::int32_t i = 0; i < call.count && i < 4; ++i)
        text += (i == 0 ? "(" : ", ") + std::to_string(call.arguments[static_cast<std::size_t>(i)]);
    if (call.count == 0) text += "(";
    return text + (call.operation == JointOperation::begin ? " tokens)" : ")");
}

/// What a rank tells the others about itself.
struct RankReport {
    std::int64_t number = 0; ///< of the operation; the first is 1
    JointCall call{};
    JointCall last{};       ///< the operation before
    std::uint64_t book = 0; ///< the hash of the bookkeeping before the operation; 0 if it is not compared
    std::int32_t failed = 0;
    std::int32_t unused = 0;
};

/// Sends a report to all other ranks, and receives theirs. All ranks exchange at the same time.
class RankReports {
public:
    explicit RankReports(const mpi::Communicator& comm)
        : own_{std::make_unique<RankReport>()},
          all_(static_cast<std::size_t>(comm.size())),
          requests_(2 * all_.size(), MPI_REQUEST_NULL) {}

    const std::vector<RankReport>& all() const { return all_; }

    /// Blocks for `seconds` at most; 0: without limit. Afterwards, `all()` has the reports of all ranks. After an
    /// error, it must not be called again.
    std::optional<mpi::MpiError> exchange(const mpi::Communicator& comm, const RankReport& own, double seconds) {
        const char* const operation = name_of(own.call.operation);
        *own_ = own;
        const int ranks = comm.size();
        for (int rank = 0; rank < ranks; ++rank) {
            if (rank == comm.rank()) continue;
            if (const int code = start(comm, rank); code != MPI_SUCCESS) return give_up(operation, rank, code);
        }
        all_[static_cast<std::size_t>(comm.rank())] = own;
        const double begun = MPI_Wtime();
        for (std::int64_t turns = 1;; ++turns) {
            int waits_for = -1;
            for (std::size_t i = 0; i < requests_.size(); ++i) {
                int done = 0;
                const int rank = static_cast<int>(i / 2);
                if (const int code = MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS)
                    return give_up(operation, rank, code);
                if (done == 0 && waits_for < 0) waits_for = rank;
            }
            if (waits_for < 0) return std::nullopt;
            if (turns % 64 == 0) std::this_thread::yield();
            if (seconds > 0 && MPI_Wtime() - begun > seconds) return give_up(operation, waits_for, MPI_SUCCESS);
        }
    }

private:
    static constexpr int tag = 0x1b01;
    static constexpr int bytes = sizeof(RankReport);

    // Two requests for each rank: what it sends, and what is sent to it.
    int start(const mpi::Communicator& comm, int rank) {
        const auto i = static_cast<std::size_t>(rank);
        const int code = MPI_Irecv(&all_[i], bytes, MPI_BYTE, rank, tag, comm.handle(), &requests_[2 * i]);
        if (code != MPI_SUCCESS) return code;
        return MPI_Isend(own_.get(), bytes, MPI_BYTE, rank, tag, comm.handle(), &requests_[2 * i + 1]);
    }

    // The receptions are cancelled. A report that is still being sent keeps its memory.
    mpi::MpiError give_up(const char* operation, int rank, int code) {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) continue;
            if (i % 2 == 0) {
                MPI_Cancel(&requests_[i]);
                MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
            } else {
                MPI_Request_free(&requests_[i]);
                static_cast<void>(own_.release());
                own_ = nullptr;
            }
        }
        if (code != MPI_SUCCESS) return error_of_code(operation, rank, code);
        return {mpi::MpiReason::timed_out,
                rank,
                std::string{operation} + ": rank " + std::to_string(rank)
                    + " has not answered within the time limit, expected it to do the same operation",
                {}};
    }

    std::unique_ptr<RankReport> own_;
    std::vector<RankReport> all_;
    std::vector<MPI_Request> requests_;
};

/// Which ranks differ from most others, or, if there is no majority, from the first; as text, and the first of them.
struct DifferingRanks {
    int first = -1; ///< -1: none
    int like = 0;   ///< a rank of the others
    std::string list;
};

/// `same(a, b)` says which reports agree.
template <class Same>
DifferingRanks differing_ranks(const std::vector<RankReport>& all, Same same) {
    DifferingRanks found;
    std::size_t most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::size_t alike = 0;
        for (const RankReport& other : all) alike += same(all[i], other) ? 1 : 0;
        if (alike <= most) continue;
        most = alike;
        found.like = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (same(all[i], all[static_cast<std::size_t>(found.like)])) continue;
        if (found.first < 0) found.first = static_cast<int>(i);
        found.list += (found.list.empty() ? "" : ", ") + std::to_string(i);
    }
    return found;
}

} // namespace cellar::detail
