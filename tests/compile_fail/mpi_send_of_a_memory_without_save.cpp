// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A memory that has snapshots, but not what transfers need of it. The compiler must say so at the call.
// error: no matching function
// error: SavesSnapshots
#include <cellar/cellar.hpp>
#include <cellar/mpi/send.hpp>

struct Memory : cellar::Cache<> {
    using cellar::Cache<>::Cache;
#ifndef CORRECTED
    void save() const {}
#endif
};

cellar::mpi::Sending send(const cellar::mpi::Communicator& comm, Memory& memory) {
    return cellar::mpi::send(comm, 1, memory, cellar::Sequence{0});
}
