// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>

#include <mpi.h>

// One process, which has the communicator to itself. It is not started by mpirun.
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int found = 0;
    {
        const cellar::mpi::Communicator comm{MPI_COMM_WORLD};
        const cellar::Cache<> cache{cellar::CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 4},
                                    {.sequences = 1, .capacity = 8, .batch = 1}};
        found = comm.size() == 1 && comm.rank() == 0 && cache.cells() == 8 ? 1 : 0;
    }
    MPI_Finalize();
    return found == 1 ? 0 : 1;
}
