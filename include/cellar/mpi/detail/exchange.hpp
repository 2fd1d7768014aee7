// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/deadline.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mpi.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Messages between this rank and all others that are under way at the same time, with a time limit: in each round at
/// most one to each rank and one from each.
class Exchange {
public:
    /// The messages of all rounds have this tag.
    Exchange(int ranks, int tag) : requests_(2 * static_cast<std::size_t>(ranks), MPI_REQUEST_NULL), tag_{tag} {}

    /// Begins to receive and to send. Without elements, there is no message.
    void receive(const mpi::Communicator& comm, int rank, void* to, int count, MPI_Datatype type) {
        if (count == 0 || failed_ >= 0) return;
        note(rank, MPI_Irecv(to, count, type, rank, tag_, comm.handle(), &request_from(rank)));
    }
    void send(const mpi::Communicator& comm, int rank, const void* from, int count, MPI_Datatype type) {
        if (count == 0 || failed_ >= 0) return;
        note(rank, MPI_Isend(from, count, type, rank, tag_, comm.handle(), &request_to(rank)));
    }

    /// Blocks until all messages of the round are there, for `time_limit` at most; 0: without limit. The error names a
    /// rank. After one, `uses_memory` says whether MPI may still use the memory of the messages, and nothing may be
    /// sent any more.
    std::optional<mpi::MpiError> finish(const char* operation, std::chrono::milliseconds time_limit) {
        const Deadline deadline{time_limit};
        for (std::int64_t turns = 1; failed_ < 0; ++turns) {
            const int waits_for = test();
            if (failed_ >= 0) break;
            if (waits_for < 0) return std::nullopt;
            if (turns % 64 == 0) std::this_thread::yield();
            if (deadline.has_passed()) {
                give_up();
                return mpi::MpiError{mpi::MpiReason::timed_out,
                                     waits_for,
                                     std::string{operation} + ": rank " + std::to_string(waits_for)
                                         + " has not answered within the time limit, expected it to do the same "
                                           "operation",
                                     {}};
            }
        }
        give_up();
        return error_of_code(operation, failed_, code_);
    }

    bool uses_memory() const { return uses_memory_; }

    /// What MPI may still use stays where it is until the process ends.
    template <class Memory>
    static void keep(Memory memory) {
        static std::list<Memory> kept;
        kept.push_back(std::move(memory));
    }

private:
    MPI_Request& request_from(int rank) { return requests_[2 * static_cast<std::size_t>(rank)]; }
    MPI_Request& request_to(int rank) { return requests_[2 * static_cast<std::size_t>(rank) + 1]; }

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

} // namespace cellar::detail
