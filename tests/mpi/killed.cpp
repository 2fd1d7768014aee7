// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One of two ranks dies in the middle of a transfer. The other one gets an error that names it, and keeps its memory.
// Needs a library with fault tolerance (ULFM), which does not end the job. Argument: the rank that dies, 0 or 1. Rank 0
// sends.
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/receive.hpp>
#include <cellar/mpi/send.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <string>
#include <thread>
#include <vector>

using namespace cellar;

namespace {

using HalfCache = Cache<StandardV<half>>;
constexpr int heads = 16;
constexpr int dim = 128;
constexpr int tokens = 4096; // 32 MiB, in blocks of 1 MiB
constexpr int steps = 24;    // of the rank that dies. Each moves at most one block, so the transfer is not over then.

bool feed(HalfCache& memory, Sequence s, int n, float x) {
    auto pass = memory.begin(BatchBuilder{s, memory.next(s), n});
    if (!pass) return false;
    const std::vector<float> rows(static_cast<std::size_t>(n) * heads * dim, x);
    pass->put(0, rows, rows);
    pass->commit();
    return true;
}

[[noreturn]] void end(const std::string& text, bool well) {
    std::printf("%s: %s\n", well ? "survived" : "failed", text.c_str());
    std::fflush(stdout);
    std::_Exit(well ? 0 : 1); // MPI_Finalize would wait for the dead one
}

template <class Transfer>
void run(Transfer transfer, HalfCache& memory, int rank, int dying) {
    if (rank == dying) {
        for (int i = 0; i < steps; ++i) {
            static_cast<void>(transfer.progress());
            std::this_thread::sleep_for(std::chrono::milliseconds{1}); // the other rank goes on
        }
        std::raise(SIGKILL);
    }
    const auto result = transfer.wait();
    if (result) end("the transfer has no error", false);
    const bool named = result.error() == mpi::MpiReason::lost && result.error().rank == dying;
    const bool whole = audit(memory).empty() && memory.tokens(Sequence{0}) == (rank == 0 ? tokens : 5)
                       && memory.statistics().snapshots == 0 && feed(memory, Sequence{1}, 16, 3);
    end(result.error().message, named && whole);
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const mpi::Communicator comm{MPI_COMM_WORLD};
    const int dying = argc > 1 ? std::atoi(argv[1]) : 1;
    HalfCache memory{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                     {.sequences = 2, .cells = 2 * tokens, .batch = tokens}};
    constexpr std::chrono::milliseconds limit = std::chrono::seconds{20};
    if (!feed(memory, Sequence{0}, comm.rank() == 0 ? tokens : 5, 1)) end("the memory is too small", false);
    if (comm.rank() == 0) {
        run(mpi::send(comm, 1, memory, Sequence{0}, {.time_limit = limit}), memory, 0, dying);
    } else {
        run(mpi::receive(comm, 0, memory, Sequence{0}, {.time_limit = limit}), memory, 1, dying);
    }
}
