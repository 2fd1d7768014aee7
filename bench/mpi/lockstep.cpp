// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decode step of a memory in lockstep, beside the broadcast of its batch, and beside a memory of one process. The
// ranks broadcast in turn, so that each step waits for the one before.
#include "jobs.hpp"
#include <cellar/base/batch_builder.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/mpi/broadcast.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_memory.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace cellar;

using Keys = Cache<PermutedV<half>>;

constexpr std::int32_t steps = 500;
constexpr std::int32_t prompt = 1000;

class Decoding {
public:
    explicit Decoding(std::int32_t sequences)
        : comm_{MPI_COMM_WORLD},
          memory_{comm_, cache(sequences), {.compares = false}},
          alone_{cache(sequences)},
          shared_{sequences},
          ids_(static_cast<std::size_t>(sequences)) {
        for (std::int32_t s = 0; s < sequences; ++s) {
            take(memory_, BatchBuilder{Sequence{s}, Position{0}, prompt});
            take(alone_, BatchBuilder{Sequence{s}, Position{0}, prompt});
        }
    }

    double broadcasts() {
        return seconds_of_broadcast_and([] {});
    }
    double in_lockstep() {
        const double seconds = steps_of(memory_);
        if (memory_.agreements() != 0) std::abort(); // not what is to be measured
        return seconds;
    }
    double alone() { return steps_of(alone_); }

private:
    static Keys cache(std::int32_t sequences) {
        return {{.layers = 1, .kv_heads = 1, .head_dim = 8},
                {.sequences = sequences, .capacity = prompt + steps + 64, .batch = prompt}};
    }

    template <class M>
    double steps_of(M& memory) {
        const double seconds = seconds_of_broadcast_and([&] { take(memory, shared_); });
        for (std::int32_t s = 0; s < memory.sequences(); ++s)
            if (!memory.remove(Sequence{s}, Position{prompt}, to_end)) std::abort();
        return seconds;
    }

    template <class M>
    static void take(M& memory, const Batch& batch) {
        auto pass = memory.begin(batch);
        if (!pass) std::abort();
        pass->mark_put(0);
        pass->commit();
    }

    template <class F>
    double seconds_of_broadcast_and(F take_step) {
        return seconds_of(steps, [&](int i) {
            const int root = i % comm_.size();
            if (comm_.rank() == root) {
                batch_.clear();
                for (std::int32_t s = 0; s < memory_.sequences(); ++s) batch_.add(Sequence{s}, Position{prompt + i});
                shared_.assign(batch_, ids_);
            }
            if (!mpi::broadcast(comm_, shared_, root)) std::abort();
            take_step();
        });
    }

    mpi::Communicator comm_;
    mpi::LockstepMemory<Keys> memory_;
    Keys alone_;
    mpi::SharedBatch shared_;
    BatchBuilder batch_;
    std::vector<std::int32_t> ids_;
};

} // namespace

std::vector<Job> lockstep_jobs() {
    std::vector<Job> jobs;
    for (const std::int32_t sequences : {1, 8, 64}) {
        const auto decoding = std::make_shared<Decoding>(sequences);
        const std::string group = "lockstep, " + std::to_string(sequences) + " sequences";
        jobs.push_back({group, "broadcast of the batch", [=] { return decoding->broadcasts(); }});
        jobs.push_back({group, "with begin and commit", [=] { return decoding->in_lockstep(); }});
        jobs.push_back({group, "with those of a memory of one process", [=] { return decoding->alone(); }});
    }
    return jobs;
}

} // namespace bench
