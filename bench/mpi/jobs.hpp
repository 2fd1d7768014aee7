// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <functional>
#include <mpi.h>
#include <string>
#include <vector>

namespace bench {

/// What is measured on all ranks at the same time. The first job of a group is what the others are compared with.
struct Job {
    std::string group;
    std::string name;
    std::function<double()> seconds; ///< of one step, on this rank; the slowest rank counts
};

/// Seconds of one step on average: calls `step(i)` for each i below `steps`.
template <class Step>
double seconds_of(int steps, Step step) {
    const double begun = MPI_Wtime();
    for (int i = 0; i < steps; ++i) step(i);
    return (MPI_Wtime() - begun) / steps;
}

std::vector<Job> lockstep_jobs();
std::vector<Job> context_jobs();
std::vector<Job> migration_jobs();

} // namespace bench
