// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/mpi/detail/transfers.hpp>

#include <memory>
#include <mpi.h>

namespace cellar::mpi {

/// A duplicate of a program's communicator. Messages of cellar and of the program cannot be confused. Errors of MPI are
/// returned instead of ending the program. Move-only. Every operation of cellar on several processes takes one.
///
/// One thread may use it at a time: `MPI_THREAD_FUNNELED` suffices.
class Communicator {
public:
    /// Collective over `comm`, an intracommunicator: all its ranks make theirs at the same time. MPI must be
    /// initialised, and not finalised.
    explicit Communicator(MPI_Comm comm, Where where = Where::current()) {
        int initialised = 0;
        MPI_Initialized(&initialised);
        CELLAR_EXPECTS_AT(where, initialised != 0, "Communicator: MPI is not initialised, expected MPI_Init before");
        int finalised = 0;
        MPI_Finalized(&finalised);
        CELLAR_EXPECTS_AT(where, finalised == 0, "Communicator: after MPI_Finalize, expected it before");
        CELLAR_EXPECTS_AT(where, comm != MPI_COMM_NULL, "Communicator: MPI_COMM_NULL, expected a communicator");
        int between_groups = 0;
        MPI_Comm_test_inter(comm, &between_groups);
        CELLAR_EXPECTS_AT(where, between_groups == 0,
                          "Communicator: an intercommunicator, expected one whose ranks are one group");
        transfers_ = std::make_unique<detail::Transfers>(comm);
    }
    Communicator(Communicator&&) noexcept = default;
    Communicator& operator=(Communicator&&) noexcept = default;
    /// All ranks destroy theirs, before MPI_Finalize, and after the transfers that use it. May wait up to 200 ms for
    /// messages of transfers that failed.
    ~Communicator() = default;

    /// The rank of this process.
    int rank() const { return transfers().own_rank(); }
    /// The number of ranks.
    int size() const { return transfers().ranks(); }
    /// The duplicate, for cellar's own messages; MPI_COMM_NULL if it was moved from.
    MPI_Comm handle() const { return transfers_ == nullptr ? MPI_COMM_NULL : transfers_->comm(); }

    /// For cellar itself.
    detail::Transfers& transfers() const { return detail::expect_not_moved(transfers_, "communicator"); }

private:
    std::unique_ptr<detail::Transfers> transfers_; // and the duplicate
};

} // namespace cellar::mpi

namespace cellar::detail {

/// A violation if the communicator was moved from.
inline void expect_valid(const char* operation, const mpi::Communicator& comm, Where where) {
    CELLAR_EXPECTS_AT(where, comm.handle() != MPI_COMM_NULL, operation,
                      ": the communicator was moved from, expected one that was not");
}
/// What transfers with another process use. A violation if `rank` is not that of another one.
inline Transfers& expect_other(const char* operation, const mpi::Communicator& comm, int rank, Where where) {
    expect_valid(operation, comm, where);
    CELLAR_EXPECTS_AT(where, rank >= 0 && rank < comm.size() && rank != comm.rank(), operation, ": rank ", rank,
                      ", expected 0 to ", comm.size() - 1, " other than this process, ", comm.rank());
    return comm.transfers();
}

} // namespace cellar::detail
