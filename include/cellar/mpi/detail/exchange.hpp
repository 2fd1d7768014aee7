// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/detail/patience.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Rounds of messages between this rank and all others, with a time limit: in each round, one to every rank and one
/// from every rank are under way at the same time. They have no heads, because all ranks know what comes.
class Exchange {
public:
    /// The messages of all rounds have this tag.
    Exchange(int ranks, int tag) : requests_(2 * static_cast<std::size_t>(ranks), MPI_REQUEST_NULL), tag_{tag} {}
    static constexpr std::int64_t bytes_for(int ranks) { return bytes_of<MPI_Request>(2 * std::int64_t{ranks}); }

    /// Collective. `to(rank)` and `from(rank)` are spans: what is sent there, and where to receive what comes from
    /// there; an empty one is no message. Blocks until all messages are there, for `time_limit` at most; 0: without
    /// limit. The error names a rank. After one, `uses_memory` says whether MPI may still use the spans, and nothing
    /// may be sent any more.
    template <class To, class From>
    std::optional<mpi::MpiError> round(const mpi::Communicator& comm, const char* operation,
                                       std::chrono::milliseconds time_limit, To to, From from) {
        for (int rank = 0; rank < comm.size() && failed_ < 0; ++rank) {
            if (rank == comm.rank()) continue;
            const std::span received = from(rank);
            const std::span sent = to(rank);
            using T = typename decltype(received)::element_type;
            MPI_Datatype type = std::is_same_v<T, float> ? MPI_FLOAT : MPI_BYTE;
            MPI_Request* const requests = &requests_[2 * static_cast<std::size_t>(rank)];
            if (!received.empty())
                note(rank, MPI_Irecv(received.data(), static_cast<int>(received.size()), type, rank, tag_,
                                     comm.handle(), requests));
            if (!sent.empty() && failed_ < 0)
                note(rank, MPI_Isend(sent.data(), static_cast<int>(sent.size()), type, rank, tag_, comm.handle(),
                                     requests + 1));
        }
        return finish(operation, time_limit);
    }

    bool uses_memory() const { return uses_memory_; }

private:
    std::optional<mpi::MpiError> finish(const char* operation, std::chrono::milliseconds time_limit) {
        Patience patience{time_limit};
        while (failed_ < 0) {
            const int waits_for = test();
            if (failed_ >= 0) break;
            if (waits_for < 0) return std::nullopt;
            if (patience.is_over()) {
                give_up();
                return error_of_rank(mpi::MpiReason::timed_out, operation, waits_for,
                                     {" has not answered within the time limit, expected it to do the same operation"});
            }
            patience.yield_at_times();
        }
        give_up();
        return error_of_code(operation, failed_, code_);
    }

    void note(int rank, int code) {
        if (code == MPI_SUCCESS) return;
        failed_ = rank;
        code_ = code;
    }

    // The first rank with which something is under way; -1 if there is none.
    int test() {
        int waits_for = -1;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            int done = 0;
            const int rank = static_cast<int>(i / 2);
            note(rank, MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE));
            if (failed_ >= 0) return rank;
            if (done == 0 && waits_for < 0) waits_for = rank;
        }
        return waits_for;
    }

    // Receptions that have not begun are cancelled.
    void give_up() {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) continue;
            int done = 0;
            if (i % 2 == 0) {
                MPI_Cancel(&requests_[i]);
                MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
            }
            if (done != 0) continue;
            uses_memory_ = true;
            MPI_Request_free(&requests_[i]);
        }
    }

    std::vector<MPI_Request> requests_; // for each rank: from it, and to it
    int tag_;
    int failed_ = -1; // a rank with which MPI failed
    int code_ = MPI_SUCCESS;
    bool uses_memory_ = false;
};

/// One value of every rank. All ranks exchange theirs at the same time.
template <class Value>
class RankValues {
    static_assert(std::is_trivially_copyable_v<Value>, "values are sent as bytes");

public:
    /// The messages have this tag.
    RankValues(int ranks, int tag) : all_(static_cast<std::size_t>(ranks)), exchange_{ranks, tag} {}
    static constexpr std::int64_t bytes_for(int ranks) { return bytes_of<Value>(ranks) + Exchange::bytes_for(ranks); }

    /// By rank.
    const std::vector<Value>& all() const { return all_; }

    /// Collective: one message to every rank. Blocks for `time_limit` at most; 0: without limit. Afterwards, `all()`
    /// has the values of all ranks. After an error, neither must be called again.
    std::optional<mpi::MpiError> exchange(const mpi::Communicator& comm, const char* operation, const Value& own,
                                          std::chrono::milliseconds time_limit) {
        const auto bytes_of = [&](int rank) {
            return std::as_writable_bytes(std::span{&all_[static_cast<std::size_t>(rank)], 1});
        };
        all_[static_cast<std::size_t>(comm.rank())] = own;
        auto error = exchange_.round(
            comm, operation, time_limit, [&](int) { return bytes_of(comm.rank()); }, bytes_of);
        if (error && exchange_.uses_memory()) abandon(std::move(all_));
        return error;
    }

private:
    std::vector<Value> all_;
    Exchange exchange_;
};

} // namespace cellar::detail
