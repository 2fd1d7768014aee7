// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the cases of a suite on all ranks at the same time. Only rank 0 prints, and any rank that fails.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>
#include <mpi.h>
#include <sstream>
#include <string>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    std::ostringstream report;
    doctest::Context context{argc, argv};
    context.setOption("no-intro", true);
    context.setCout(&report);
    int failed = context.run() == 0 ? 0 : 1;
    if (rank == 0 || failed != 0)
        std::cout << "rank " + std::to_string(rank) + " of " + std::to_string(size) + "\n" + report.str() << std::flush;

    int any_failed = 0;
    MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any_failed;
}
