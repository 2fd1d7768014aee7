// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Pipeline: each rank has some layers, and their caches only. Rank 0 decides what is next; activations go from rank to
// rank, and the last one draws the next token.
//
//     mpirun -n 2 mpi_layers
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "mpi/attention_memory.hpp"
#include "mpi/parts.hpp"
#include "mpi/program.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/pipeline_stage.hpp>
#include <cellar/mpi/shares.hpp>

#include <iostream>
#include <mpi.h>
#include <span>
#include <stdexcept>
#include <string>

namespace {

namespace mpi = cellar::mpi;

/// One rank of the pipeline.
class Stage {
public:
    Stage(mpi::Communicator& comm, const llama::Weights& whole)
        : next_{comm.rank() + 1 < comm.size() ? comm.rank() + 1 : MPI_PROC_NULL},
          previous_{comm.rank() > 0 ? comm.rank() - 1 : MPI_PROC_NULL},
          last_{comm.size() - 1},
          model_{part_of_layers(whole, mpi::layers_of(comm.rank(), comm.size(), whole.config.layers()))},
          // Some stages have sliding layers and others a full one, so they ask one another.
          text_{model_.config(), Memory{comm, llama::make_caches(model_.config()), {.asks_always = true}}} {}

    /// The first stage: runs tokens through all layers, and returns the next one.
    int feed(std::span<const int> tokens, int first) {
        llama::expect(text_.begin(cellar::BatchBuilder{llama::the_text, cellar::Position{first},
                                                       static_cast<int>(tokens.size())}),
                      "begin");
        model_.embed(tokens);
        model_.run_layers(text_);
        send_on();
        text_.commit();
        int next = 0;
        MPI_Recv(&next, 1, MPI_INT, last_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wait();
        return next;
    }
    void end() { text_.memory().end(); }

    /// The other stages: follow until the first one ends.
    void follow(llama::Sampler sample) {
        while (text_.begin_received()) {
            llama::Matrix& stream = model_.stream();
            const int tokens = text_.memory().received().tokens();
            stream.resize(tokens, model_.config().hidden_size);
            MPI_Recv(stream.data(), static_cast<int>(stream.size()), MPI_FLOAT, previous_, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            model_.run_layers(text_);
            if (next_ != MPI_PROC_NULL) {
                send_on();
            } else {
                const int newest = tokens - 1;
                drawn_ = sample(model_.classify({&newest, 1}));
                MPI_Isend(&drawn_, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &sent_);
            }
            text_.commit();
            wait();
        }
    }

    int layers() const { return model_.config().layers(); }

private:
    using Memory = mpi::PipelineStage<llama::Caches>;

    // `commit` may wait for the other stages, so it comes between a send and the wait for it. After `wait`, the next
    // pass may write the buffer that was sent.
    void send_on() {
        const llama::Matrix& stream = model_.stream();
        MPI_Isend(stream.data(), static_cast<int>(stream.size()), MPI_FLOAT, next_, 0, MPI_COMM_WORLD, &sent_);
    }
    void wait() { MPI_Wait(&sent_, MPI_STATUS_IGNORE); }

    int next_;
    int previous_;
    int last_;
    llama::Llama model_;
    llama::AttentionMemory<Memory> text_;
    int drawn_ = 0; // by the last stage
    MPI_Request sent_ = MPI_REQUEST_NULL;
};

bool run(const llama::MpiOptions& o, mpi::Communicator& comm) {
    const llama::Weights whole = llama::weights_of(o);
    if (comm.size() < 2 || comm.size() > whole.config.layers())
        throw std::runtime_error{std::to_string(comm.size()) + " processes, expected 2 to "
                                 + std::to_string(whole.config.layers()) + ", one for each layer at most"};
    Stage stage{comm, whole};
    if (comm.rank() != 0) {
        stage.follow(llama::MpiOptions::sampler());
        return true;
    }
    const std::string written = llama::write(
        o.text(), 0, o.tokens, [&](std::span<const int> tokens, int first) { return stage.feed(tokens, first); });
    stage.end();
    std::cout << o.prompt << written << "\n\n" << stage.layers() << " layers on rank 0\n";
    return written == llama::text_of_one_process(o, llama::MpiOptions::sampler());
}

} // namespace

int main(int argc, char** argv) {
    return llama::mpi_command("mpi_layers", "Divides the layers of a model between ranks", argc, argv, run);
}
