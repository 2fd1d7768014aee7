// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Rank 0 computes a prompt and sends its sequence to all other ranks. Each rank continues the prompt with random
// numbers of its own; rank 0 writes while it sends. All texts are those that one process writes.
//
//     mpirun -n 2 mpi_migrate
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "mpi/attention_memory.hpp"
#include "mpi/program.hpp"
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/receive.hpp>
#include <cellar/mpi/send.hpp>

#include <cstdint>
#include <iostream>
#include <mpi.h>
#include <span>
#include <string>
#include <vector>

namespace {

/// Prints the texts of all ranks on rank 0.
void print(const cellar::mpi::Communicator& comm, const std::string& prompt, std::string text) {
    const auto size = static_cast<int>(text.size());
    if (comm.rank() != 0) {
        MPI_Send(text.data(), size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        return;
    }
    for (int rank = 0; rank < comm.size(); ++rank) {
        if (rank > 0) MPI_Recv(text.data(), size, MPI_CHAR, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        std::cout << "rank " << rank << "\n\n" << prompt << text << "\n\n";
    }
}

bool run(const llama::MpiOptions& o, cellar::mpi::Communicator& comm) {
    llama::Llama model{llama::weights_of(o)};
    llama::AttentionMemory<llama::Caches> text{model.config(), llama::make_caches(model.config())};
    const std::vector<int> prompt = o.text();
    const int ready = static_cast<int>(prompt.size()) - 1; // the last token is fed where the text goes on
    const llama::Sampler own = llama::MpiOptions::sampler(static_cast<std::uint64_t>(comm.rank()));
    llama::Sampler sample = own;

    std::vector<cellar::mpi::Sending> sendings;
    if (comm.rank() == 0) {
        if (ready > 0) llama::run(model, text, sample = own, std::span{prompt}.first(prompt.size() - 1), 0);
        for (int rank = 1; rank < comm.size(); ++rank)
            sendings.push_back(cellar::mpi::send(comm, rank, text.memory(), llama::the_text));
    } else {
        llama::expect(cellar::mpi::receive(comm, 0, text.memory(), llama::the_text).wait(), "receive");
    }
    sample = own;
    const std::string written = llama::write(prompt, ready, o.tokens, [&](std::span<const int> tokens, int first) {
        for (auto& sending : sendings) sending.progress();
        return llama::run(model, text, sample, tokens, first);
    });
    for (auto& sending : sendings) llama::expect(sending.wait(), "send");

    print(comm, o.prompt, written);
    return written == llama::text_of_one_process(o, own);
}

} // namespace

int main(int argc, char** argv) {
    return llama::mpi_command("mpi_migrate", "Prefills on rank 0, and decodes on all ranks", argc, argv, run);
}
