// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/result.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <mpi.h>
#include <new>
#include <string>

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h> // the errors of a process that has died, in Open MPI 5
#endif

namespace cellar::detail {

/// `operation: rank n`, and a text that goes on from there.
[[gnu::cold, gnu::noinline]] inline mpi::MpiError error_of_rank(mpi::MpiReason reason, const char* operation, int rank,
                                                                std::initializer_list<MessagePart> text,
                                                                const Refusal& refusal = {}) {
    return {reason, rank, composed({operation, ": rank ", rank}) + composed(text), refusal};
}

/// `operation` and a text that goes on from there. Without them if there is no memory for that.
inline mpi::MpiError error_with(mpi::MpiReason reason, int rank, const char* operation, const char* text) noexcept {
    mpi::MpiError error{reason, rank, {}, {}};
    try {
        error.message = composed({operation, text});
    } catch (const std::bad_alloc&) {}
    return error;
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
    return error_of_rank(lost ? mpi::MpiReason::lost : mpi::MpiReason::failed, operation, rank,
                         {lost ? " has died (" : " cannot be reached (", text_of_mpi_error(code), ")"});
}

/// The error for a message that is not what its sender wrote.
inline mpi::MpiError error_of_fault(const char* operation, int rank, MessageFault fault) {
    const bool is_foreign = fault == MessageFault::foreign;
    const char* const problem = is_foreign                   ? "it is of another version or byte order of cellar"
                                : fault == MessageFault::cut ? "it has another length than it says"
                                                             : "its checksum does not match";
    return {is_foreign ? mpi::MpiReason::malformed : mpi::MpiReason::altered,
            rank,
            composed({operation, ": a message of rank ", rank, ": ", problem}),
            {}};
}

} // namespace cellar::detail
