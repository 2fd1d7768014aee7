// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>

#include <stdexcept>
#include <string>

namespace cellar::mpi {

/// Why an operation on several processes failed.
enum class MpiReason {
    lost,       ///< the other process has died, or MPI cannot reach it
    timed_out,  ///< nothing arrived from the other process within the time limit
    cancelled,  ///< the other process gave the operation up
    altered,    ///< a checksum does not match: the bytes are not the ones that were sent
    malformed,  ///< a message contradicts itself, or is of another version of cellar
    unsuitable, ///< what was sent is whole, but the receiving memory cannot hold it: another shape, for example
    differs,    ///< the ranks did different things, or their bookkeeping differs
    refused,    ///< a memory refuses: `MpiError::refusal` says why
    no_memory,  ///< a process could not allocate what the operation needs
    failed,     ///< MPI reports another error
};

/// One line for a person.
constexpr const char* to_string(MpiReason reason) {
    switch (reason) {
    case MpiReason::lost:
        return "lost";
    case MpiReason::timed_out:
        return "timed out";
    case MpiReason::cancelled:
        return "cancelled";
    case MpiReason::altered:
        return "altered";
    case MpiReason::malformed:
        return "malformed";
    case MpiReason::unsuitable:
        return "unsuitable";
    case MpiReason::differs:
        return "differs";
    case MpiReason::refused:
        return "refused by the memory";
    case MpiReason::no_memory:
        return "out of memory";
    case MpiReason::failed:
        return "MPI failed";
    }
    return "unknown reason";
}

/// Why an operation on several processes failed, and on which rank. Compares with an `MpiReason`, and with the `Reason`
/// of a memory.
struct MpiError {
    MpiReason reason{};
    int rank = -1;        ///< the process that failed or refused, as a rank of the communicator; -1: unknown
    std::string message;  ///< one line: the operation, the rank, what was found, and what was expected
    Refusal refusal = {}; ///< for `refused`

    friend bool operator==(const MpiError& error, MpiReason r) { return error.reason == r; }
    friend bool operator==(const MpiError& error, Reason r) {
        return error.reason == MpiReason::refused && error.refusal == r;
    }
};

/// One line for a person.
inline const std::string& to_string(const MpiError& error) {
    return error.message;
}

/// Thrown by an operation of a memory on several ranks if a rank is dead or silent or, in a pipeline, cannot follow the
/// first stage. The memory of this rank is as before the operation.
class MpiFailure : public std::runtime_error {
public:
    explicit MpiFailure(const MpiError& error) : std::runtime_error{error.message}, error_{error} {}

    /// The error as a value: the reason, the rank, and a sentence.
    const MpiError& error() const noexcept { return error_; }

private:
    MpiError error_;
};

/// A value, or the error that explains its absence.
template <class T>
using MpiResult = Result<T, MpiError>;

} // namespace cellar::mpi
