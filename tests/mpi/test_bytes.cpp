// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What memories on several ranks say that they take is what they ask operator new for, beside what their memories take.
#include "../hybrid/failing_allocations.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/context_parallel.hpp>
#include <cellar/mpi/lockstep_memory.hpp>
#include <cellar/mpi/pipeline_stage.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <mpi.h>
#include <random>
#include <utility>
#include <violations.hpp>

namespace test_bytes {

using namespace cellar;

namespace {

using Cached = Cache<StandardV<half>>;

const CacheShape shape{.layers = 3, .kv_heads = 2, .head_dim = 8};

CacheLimits random_limits(std::mt19937& random) { // the same on all ranks
    const auto number = [&](int least, int most) { return std::uniform_int_distribution{least, most}(random); };
    CacheLimits limits{.sequences = number(1, 20), .capacity = number(1, 700), .batch = number(0, 100)};
    if (number(0, 1) == 0) limits.cells = number(1, 5000);
    return limits;
}

template <class Wrapped>
std::int64_t data_of(const Wrapped& wrapped) {
    if constexpr (requires { wrapped.cache(); }) {
        return wrapped.cache().bytes();
    } else {
        return wrapped.bytes();
    }
}

/// Makes a memory on several ranks from one of one rank, and compares what that allocates.
template <class Wrapped, class... Options>
void check_bytes(const mpi::Communicator& comm, const CacheLimits& limits, const MemoryBytes& bytes,
                 const Options&... options) {
    Cached cache{shape, limits};
    const MemoryBytes of_cache = Cached::bytes_for(shape, limits, {}, {.masks = true});
    const std::int64_t before = FailingAllocations::bytes();
    const Wrapped wrapped{comm, std::move(cache), options...};
    CHECK(FailingAllocations::bytes() - before == bytes.bookkeeping - of_cache.bookkeeping);
    CHECK(bytes.data == data_of(wrapped));
    CHECK(bytes.masks == of_cache.masks);
}

} // namespace

TEST_CASE("memories on several ranks take what they say") {
    const mpi::Communicator comm{MPI_COMM_WORLD};
    std::mt19937 random{20261128}; // NOLINT(cert-msc32-c,cert-msc51-cpp): the same series in every run
    for (int i = 0; i < 10; ++i) {
        CacheLimits limits = random_limits(random);
        CAPTURE(limits.sequences);
        CAPTURE(limits.capacity);
        CAPTURE(limits.cells);
        CAPTURE(limits.batch);
        const MemoryBytes of_cache = Cached::bytes_for(shape, limits, {}, {.masks = true});

        using Lockstep = mpi::LockstepMemory<Cached>;
        const mpi::LockstepOptions compares{.compares = true};
        check_bytes<Lockstep>(comm, limits, Lockstep::bytes_for(of_cache, comm.size()), compares);

        using Stage = mpi::PipelineStage<Cached>;
        check_bytes<Stage>(comm, limits, Stage::bytes_for(of_cache));

        using Context = mpi::ContextParallel<Cached>;
        limits.positions = Positions::any;
        check_bytes<Context>(comm, limits, Context::bytes_for(of_cache, limits, comm.size()));
    }
}

TEST_CASE("limits that no cache has are violations before anything is counted") {
    using Context = mpi::ContextParallel<Cached>;
    CHECK(violation_of([] { static_cast<void>(Context::bytes_for({}, {.sequences = 0, .capacity = 9}, 2)); })
          == "limits: 0 sequences, expected at least 1");
}

} // namespace test_bytes
