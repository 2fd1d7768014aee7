// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <chrono>
#include <mpi.h>

namespace cellar::detail {

/// The end of a wait for other ranks that begins now. With a limit of 0, there is none.
class Deadline {
public:
    explicit Deadline(std::chrono::milliseconds limit) : seconds_{std::chrono::duration<double>{limit}.count()} {}

    bool has_passed() const { return seconds_ > 0 && MPI_Wtime() - begun_ > seconds_; }

private:
    double seconds_; // floating, because the largest limit has too many nanoseconds to count them
    double begun_ = MPI_Wtime();
};

} // namespace cellar::detail
