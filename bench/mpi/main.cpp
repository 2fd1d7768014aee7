// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs all jobs in turn, several times, and prints medians and their ratios.
//
// usage: mpirun -n 2 cellar_bench_mpi [rounds [part of a group's name]]
#include "jobs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <string>
#include <utility>
#include <vector>

namespace {

double median(std::vector<double> samples) {
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
}

double slowest(double seconds) {
    double most = 0;
    MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

void measure(int rounds, const std::string& wanted) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<bench::Job> jobs = bench::lockstep_jobs();
    for (bench::Job& job : bench::context_jobs()) jobs.push_back(std::move(job));
    for (bench::Job& job : bench::migration_jobs()) jobs.push_back(std::move(job));
    std::erase_if(jobs, [&](const bench::Job& job) { return job.group.find(wanted) == std::string::npos; });
    std::vector<std::vector<double>> samples(jobs.size());
    for (int round = -1; round < rounds; ++round) // the first one warms up
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            MPI_Barrier(MPI_COMM_WORLD);
            const double seconds = slowest(jobs[i].seconds());
            if (round >= 0) samples[i].push_back(seconds);
        }
    if (rank != 0) return;
    double first = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const double seconds = median(samples[i]);
        if (i == 0 || jobs[i].group != jobs[i - 1].group) first = seconds;
        std::printf("%-34s %-44s %10.3f us  %6.2f\n", jobs[i].group.c_str(), jobs[i].name.c_str(), 1e6 * seconds,
                    seconds / first);
    }
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    measure(argc > 1 ? std::max(1, std::atoi(argv[1])) : 21, argc > 2 ? argv[2] : "");
    MPI_Finalize();
}
