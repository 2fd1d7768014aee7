// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <mpi.h>
#include <source_location>
#include <string>
#include <utility>

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h> // the errors of a process that has died, in Open MPI 5
#endif

namespace cellar::mpi {

class Communicator;

} // namespace cellar::mpi

namespace cellar::detail {

/// What the transfers of a communicator share.
inline Transfers& transfers_of(const mpi::Communicator& comm);

} // namespace cellar::detail

namespace cellar::mpi {

/// A duplicate of a program's communicator. Messages of cellar and of the program cannot be confused. Errors of MPI are
/// returned instead of ending the program. Move-only. Every operation of cellar on several processes takes one.
///
/// One thread may use it at a time: `MPI_THREAD_FUNNELED` suffices.
class Communicator {
public:
    /// Collective over `comm`, an intracommunicator: all its ranks make theirs at the same time. MPI must be
    /// initialised, and not finalised.
    explicit Communicator(MPI_Comm comm, const std::source_location& where = std::source_location::current()) {
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
        MPI_Comm_dup(comm, &comm_);
        MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &size_);
        transfers_ = std::make_unique<detail::Transfers>(comm_);
    }
    Communicator(Communicator&& other) noexcept
        : comm_{std::exchange(other.comm_, MPI_COMM_NULL)},
          rank_{other.rank_},
          size_{other.size_},
          transfers_{std::move(other.transfers_)} {}
    Communicator& operator=(Communicator&& other) noexcept {
        std::swap(comm_, other.comm_);
        std::swap(rank_, other.rank_);
        std::swap(size_, other.size_);
        std::swap(transfers_, other.transfers_);
        return *this;
    }
    /// All ranks destroy theirs, before MPI_Finalize, and after the transfers that use it. May wait up to 200 ms for
    /// messages of transfers that failed.
    ~Communicator() {
        int finalised = 0;
        MPI_Finalized(&finalised);
        transfers_.reset();
        if (comm_ != MPI_COMM_NULL && finalised == 0) MPI_Comm_free(&comm_);
    }

    int rank() const { return rank_; }
    int size() const { return size_; }
    /// The duplicate, for cellar's own messages.
    MPI_Comm handle() const { return comm_; }

private:
    friend detail::Transfers& detail::transfers_of(const Communicator& comm);

    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = -1;
    int size_ = 0;
    std::unique_ptr<detail::Transfers> transfers_;
};

} // namespace cellar::mpi

namespace cellar::detail {

inline Transfers& transfers_of(const mpi::Communicator& comm) {
    return *comm.transfers_;
}

/// A violation if the communicator was moved from.
inline void expect_valid(const char* operation, const mpi::Communicator& comm, const std::source_location& where) {
    CELLAR_EXPECTS_AT(where, comm.handle() != MPI_COMM_NULL, operation,
                      ": the communicator was moved from, expected one that was not");
}
/// A violation unless it is the rank of another process.
inline void expect_other(const char* operation, const mpi::Communicator& comm, int rank,
                         const std::source_location& where) {
    expect_valid(operation, comm, where);
    CELLAR_EXPECTS_AT(where, rank >= 0 && rank < comm.size() && rank != comm.rank(), operation, ": rank ", rank,
                      ", expected 0 to ", comm.size() - 1, " other than this process, ", comm.rank());
}

/// What MPI says of one of its error codes.
inline std::string text_of_mpi_error(int code) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
    return {text.data(), static_cast<std::size_t>(length)};
}

/// True if the code says that a process has died: a library with fault tolerance (ULFM) reports that.
inline bool is_process_failure(int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
#if defined(MPI_ERR_PROC_FAILED) // MPI 5
    return error_class == MPI_ERR_PROC_FAILED || error_class == MPI_ERR_PROC_FAILED_PENDING
           || error_class == MPI_ERR_REVOKED;
#elif defined(MPIX_ERR_PROC_FAILED)
    return error_class == MPIX_ERR_PROC_FAILED || error_class == MPIX_ERR_PROC_FAILED_PENDING
           || error_class == MPIX_ERR_REVOKED;
#elif defined(MPI_ERR_PROC_ABORTED)
    return error_class == MPI_ERR_PROC_ABORTED;
#else
    return false;
#endif
}

/// The error for a code of MPI other than MPI_SUCCESS, in an operation with this rank.
inline mpi::MpiError error_of_code(const char* operation, int rank, int code) {
    const bool lost = is_process_failure(code);
    return {lost ? mpi::MpiReason::lost : mpi::MpiReason::failed, rank,
            std::string{operation} + ": rank " + std::to_string(rank) + (lost ? " has died (" : " cannot be reached (")
                + text_of_mpi_error(code) + ")"};
}

/// The error for a message that is not what its sender wrote.
inline mpi::MpiError error_of_fault(const char* operation, int rank, MessageFault fault) {
    const bool is_foreign = fault == MessageFault::foreign;
    const char* const problem = is_foreign                   ? "it is of another version or byte order of cellar"
                                : fault == MessageFault::cut ? "it has another length than it says"
                                                             : "its checksum does not match";
    return {is_foreign ? mpi::MpiReason::malformed : mpi::MpiReason::altered, rank,
            std::string{operation} + ": a message of rank " + std::to_string(rank) + ": " + problem};
}

} // namespace cellar::detail
