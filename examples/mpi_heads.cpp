// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Tensor parallel: each rank has some heads of every layer, with their keys and values, and some channels of every
// feed-forward network. Rank 0 decides which tokens are next; the outputs of all ranks are added up.
//
//     mpirun -n 2 mpi_heads
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "mpi/attention_memory.hpp"
#include "mpi/parts.hpp"
#include "mpi/program.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/broadcast.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_memory.hpp>
#include <cellar/mpi/shares.hpp>

#include <iostream>
#include <mpi.h>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

namespace mpi = cellar::mpi;

bool run(const llama::MpiOptions& o, mpi::Communicator& comm) {
    llama::Weights whole = llama::weights_of(o);
    const llama::Config of_whole = whole.config;
    if (comm.size() > of_whole.num_attention_heads)
        throw std::runtime_error{"more processes than the " + std::to_string(of_whole.num_attention_heads) + " heads"};

    // [heads]
    const mpi::HeadShare heads =
        mpi::heads_of(comm.rank(), comm.size(), of_whole.num_key_value_heads, of_whole.num_attention_heads);
    const mpi::Share channels = mpi::share_of(comm.rank(), comm.size(), of_whole.intermediate_size);
    llama::Llama model{llama::part_of_heads(std::move(whole), heads, channels)};
    model.set_sum([](llama::Matrix& outputs) {
        MPI_Allreduce(MPI_IN_PLACE, outputs.data(), static_cast<int>(outputs.size()), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    });
    using Memory = mpi::LockstepMemory<llama::Caches>;
    llama::AttentionMemory<Memory> text{model.config(), Memory{comm, llama::make_caches(model.config())}};

    mpi::SharedBatch batch;
    llama::Sampler sample = llama::MpiOptions::sampler();
    const auto feed = [&](std::span<const int> tokens, int first) {
        const int last = static_cast<int>(tokens.size()) - 1;
        if (comm.rank() == 0)
            batch.assign(cellar::BatchBuilder{llama::the_text, cellar::Position{first}, last + 1}, tokens);
        llama::expect(mpi::broadcast(comm, batch, 0), "broadcast");
        llama::expect(text.begin(batch), "begin"); // refused on all ranks, or on none
        const llama::Matrix& logits = model.forward(batch.ids(), text, {&last, 1});
        text.commit();
        return sample(logits);
    };
    // [/heads]

    const std::string written = llama::write(o.text(), 0, o.tokens, feed);
    llama::expect(text.memory().compare(), "compare");
    if (comm.rank() != 0) return true;
    std::cout << o.prompt << written << "\n\n"
              << heads.kv.count << " of " << of_whole.num_key_value_heads << " heads of keys and values on a rank, "
              << heads.ranks.count << " ranks with the same ones\n";
    return written == llama::text_of_one_process(o, llama::MpiOptions::sampler());
}

} // namespace

int main(int argc, char** argv) {
    return llama::mpi_command("mpi_heads", "Divides the heads of a model between ranks", argc, argv, run);
}
