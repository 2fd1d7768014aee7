// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <stdexcept>

namespace cellar::mpi {

/// How ranks keep their memories alike.
struct LockstepOptions {
    NamedOnly named_only{};
    /// Every operation compares calls and bookkeeping of all ranks, and a rank that differs is a violation. Costs a
    /// message to every other rank, and O(runs). The default of a program that is compiled with `NDEBUG` is false.
#if defined(NDEBUG)
    bool compares = false;
#else
    bool compares = true;
#endif
    /// How long an operation waits for the other ranks. 0: without limit.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
};

/// Thrown by an operation of a memory on several ranks if a rank is dead or silent. The memory of this rank is as
/// before the operation.
class MpiFailure : public std::runtime_error {
public:
    explicit MpiFailure(const MpiError& error) : std::runtime_error{error.message}, error_{error} {}

    const MpiError& error() const noexcept { return error_; }

private:
    MpiError error_;
};

} // namespace cellar::mpi
