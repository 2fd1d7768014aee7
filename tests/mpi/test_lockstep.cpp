// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../hybrid/failing_allocations.hpp"
#include "../hybrid/toy.hpp"
#include "ranks.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/lockstep_memory.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <mpi.h>
#include <new>
#include <string>
#include <utility>
#include <violations.hpp>

namespace test_lockstep {

using namespace cellar;
using namespace std::chrono_literals;
using mpi::Communicator;
using mpi::LockstepMemory;
using ranks::contents;
using ranks::has;

namespace {

using Rotating = Cache<StandardV<float>, FullCausal, RopeShift<>>;
using Lockstep = LockstepMemory<Rotating>;

constexpr Sequence alice{0};
constexpr Sequence bob{1};

/// Rank 1 has more heads than the others.
Rotating rotating(const Communicator& comm, const CacheLimits& limits = {.sequences = 2, .cells = 64, .batch = 16}) {
    return {{.layers = 2, .kv_heads = comm.rank() == 1 ? 2 : 1, .head_dim = 4},
            limits,
            FullCausal{},
            RopeShift<>{rope_frequencies(4)}};
}

template <class M>
void add(M& memory, Sequence s, std::int32_t tokens) {
    auto pass = *memory.begin(BatchBuilder{s, memory.next(s), tokens});
    for (int layer = 0; layer < memory.layers(); ++layer) pass.mark_put(layer);
    pass.commit();
}

} // namespace

static_assert(Memory<Lockstep> && HasSnapshots<Lockstep>);

TEST_CASE("passes that find room send nothing") {
    Communicator comm{MPI_COMM_WORLD};
    LockstepMemory memory{comm, rotating(comm), {.compares = false}};
    for (int i = 0; i < 20; ++i) add(memory, alice, 1);
    CHECK(memory.begin(BatchBuilder{bob, Position{0}, 17}).error() == Reason::batch_too_long);
    CHECK(memory.begin(BatchBuilder{bob, Position{0}, 3}));
    CHECK(memory.remove(alice, Position{18}, to_end));
    CHECK(memory.agreements() == 0);
    CHECK(memory.remove(alice, Position{2}, Position{4})); // the list of rotations takes memory
    CHECK(memory.agreements() == 1);
    CHECK(memory.compare());
}

TEST_CASE("memory that is short on one rank is short on all, and nothing has changed on any") {
    Communicator comm{MPI_COMM_WORLD};
    const int last = comm.size() - 1;
    // The memory of cells grows with the first tokens, and the list of rotations takes memory.
    LockstepMemory memory{
        comm, rotating(comm, {.sequences = 2, .cells = 256, .initial_cells = 16, .batch = 64}), {.compares = false}};
    add(memory, alice, 12);
    REQUIRE(memory.copy_prefix(alice, bob, Position{6}));
    const std::string before = contents(memory.memory());
    const BatchBuilder batch{alice, Position{12}, 64};
    const auto snapshot = *memory.snapshot(alice);
    const auto failed_everywhere = [&](auto operation) {
        bool failed = false;
        try {
            const FailingAllocations failing{comm.rank() == last ? 0 : FailingAllocations::unlimited};
            operation();
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        CHECK(contents(memory.memory()) == before);
        CHECK(memory.memory().statistics().snapshots == 1);
        CHECK(memory.compare());
        return failed;
    };
    CHECK(failed_everywhere([&] { (void)memory.begin(batch); }));
    CHECK(failed_everywhere([&] { (void)memory.remove(alice, Position{2}, Position{4}); }));
    CHECK(failed_everywhere([&] { (void)memory.snapshot(alice); }));
    CHECK(failed_everywhere([&] { (void)memory.schedule(alice, Position{40}); })
          == false); // a full window schedules nothing

    // The ranks have different room by now, and go on together.
    const std::int64_t asked = memory.agreements();
    add(memory, alice, 1);
    CHECK(memory.agreements() == asked + 1);
    add(memory, bob, 60);
    CHECK(memory.remove(alice, Position{2}, Position{4}));
    CHECK(memory.restore(bob, snapshot));
    CHECK(memory.next(bob) == Position{12});
    CHECK(memory.compare());
}

TEST_CASE("defragment moves the cells of all ranks, or of none") {
    Communicator comm{MPI_COMM_WORLD};
    const CacheLimits limits{.sequences = 2, .cells = 64, .batch = 16, .placement = Placement::scattered};
    LockstepMemory memory{Communicator{MPI_COMM_WORLD}, rotating(comm, limits), {.compares = false}};
    add(memory, alice, 3);
    add(memory, bob, 5);
    REQUIRE(memory.remove(alice, Position{0}, to_end));
    const std::string before = contents(memory.memory());
    CHECK(before == "0@3+5 59 free");
    bool failed = false;
    try {
        const FailingAllocations failing{comm.rank() == 0 ? 0 : FailingAllocations::unlimited};
        memory.defragment();
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    CHECK(failed);
    CHECK(contents(memory.memory()) == before);
    CHECK(memory.agreements() == 1);
    memory.defragment();
    CHECK(contents(memory.memory()) == "0@3+2 2@0+3 59 free");
    CHECK(memory.agreements() == 2);
    CHECK(memory.compare());
}

template <class M>
concept Defragments = requires(M& memory) {
    memory.defragment();
};
static_assert(Defragments<LockstepMemory<toy::Memory>> && !Defragments<LockstepMemory<toy::Recurrent>>);

TEST_CASE("refusals are the same on all ranks, without a message") {
    Communicator comm{MPI_COMM_WORLD};
    LockstepMemory memory{comm, rotating(comm, {.sequences = 2, .cells = 16, .batch = 16}), {.compares = false}};
    add(memory, alice, 10);
    const std::string before = contents(memory.memory());
    CHECK(memory.begin(BatchBuilder{bob, Position{0}, 7}).error() == Reason::full);
    CHECK(memory.rewind(alice, Position{11}).error() == Reason::not_next);
    CHECK(memory.agreements() == 0);
    CHECK(memory.snapshot(alice, Position{0}, Position{12}).error() == Reason::not_next);
    CHECK(contents(memory.memory()) == before);
    CHECK(memory.compare());
}

TEST_CASE("a tree of drafts over states is refused on all ranks, with nothing changed") {
    Communicator comm{MPI_COMM_WORLD};
    LockstepMemory memory{comm, toy::memory(), {.compares = false}};
    const std::string before = toy::portrait(memory.memory());
    const auto refused = memory.begin(BatchBuilder{alice, Position{0}}.add_child(0).add_child(0));
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Refusal{Reason::cannot_branch, 2});
    CHECK(toy::portrait(memory.memory()) == before);
    CHECK(memory.compare());
}

TEST_CASE("snapshots of all ranks are taken, divided, joined, offloaded and restored together") {
    Communicator comm{MPI_COMM_WORLD};
    LockstepMemory memory{comm, rotating(comm)};
    add(memory, alice, 12);
    auto snapshot = *memory.snapshot(alice);
    auto rest = *memory.split(snapshot, Position{5});
    CHECK(memory.restore(bob, snapshot));
    CHECK(memory.next(bob) == Position{5});
    memory.offload(rest);
    CHECK(rest.is_offloaded());
    CHECK(memory.reload(rest));
    CHECK(memory.merge(snapshot, std::move(rest)));
    CHECK(memory.restore(bob, snapshot, Position{7}));
    CHECK(memory.next(bob) == Position{7});
    CHECK(memory.remove(alice, Position{3}, Position{4}, RotateBy{0}));
    CHECK(memory.reserve(3).tokens() == 3);
    CHECK(memory.schedule(alice, Position{30}));
    memory.unschedule(alice, Position{30});
    CHECK(memory.can_resume(alice, Position{11}));
    CHECK(memory.resumable_prefix(alice, Position{20}) == Position{11});
    CHECK(memory.compare());
}

TEST_CASE("compare names the rank that did another operation") {
    Communicator comm{MPI_COMM_WORLD};
    const int other = comm.size() - 1;
    LockstepMemory memory{comm, rotating(comm), {.compares = false}};
    add(memory, alice, 10);
    // [compare]
    if (const auto compared = memory.compare(); !compared) FAIL(compared.error().message); // names the rank
    // [/compare]
    REQUIRE(memory.remove(alice, Position{comm.rank() == other ? 8 : 9}, to_end));
    const auto compared = memory.compare();
    REQUIRE(!compared);
    CHECK(compared.error() == mpi::MpiReason::differs);
    CHECK(compared.error().rank == other);
    CHECK(has(compared.error().message, "the bookkeeping of rank " + std::to_string(other)));

    REQUIRE(memory.remove(alice, Position{8}, to_end));
    CHECK(memory.compare());
    if (comm.rank() == other) add(memory, alice, 1);
    CHECK(has(memory.compare().error().message,
              "compare() as operation 3: rank " + std::to_string(other) + " called compare() as operation 4"));
}

TEST_CASE("memories with other limits, windows, rotations or tokens on one rank are a violation that names it") {
    Communicator comm{MPI_COMM_WORLD};
    const int other = comm.size() - 1;
    const bool differs = comm.rank() == other;
    const auto violation = [&](auto memory) { return violation_of([&] { LockstepMemory{comm, std::move(memory)}; }); };
    const std::string expected = "lockstep: other limits, windows, rotations or tokens on rank " + std::to_string(other)
                                 + ", expected the same on all ranks";
    CHECK(violation(rotating(comm, {.sequences = differs ? 3 : 2, .cells = 64, .batch = 16})) == expected);
    CHECK(violation(rotating(comm, {.sequences = 2, .cells = differs ? 65 : 64, .batch = 16})) == expected);
    CHECK(violation(rotating(comm, {.sequences = 2, .cells = 64, .batch = differs ? 15 : 16})) == expected);
    CHECK(violation(rotating(comm, {.sequences = 2, .cells = 64, .batch = 16, .padding = differs ? 16 : 8}))
          == expected);
    CHECK(
        violation(rotating(
            comm,
            {.sequences = 2, .cells = 64, .batch = 16, .positions = differs ? Positions::any : Positions::consecutive}))
        == expected);
    CHECK(violation(rotating(comm, {.sequences = 2,
                                    .cells = 64,
                                    .batch = 16,
                                    .placement = differs ? Placement::scattered : Placement::blocks}))
          == expected);
    CHECK(violation(rotating(comm, {.sequences = 2, .cells = 64, .batch = 16, .start_padding = differs ? 0 : 1}))
          == expected);
    using Paired = Cache<StandardV<float>, FullCausal, RopeShift<RunTimePairing>>;
    CHECK(violation(Paired{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                           {.cells = 64},
                           {},
                           {rope_frequencies(4), {.interleaved = differs}}})
          == expected);
    using Chunks = Cache<StandardV<float>, ChunkedAttention<>>;
    CHECK(violation(Chunks{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                           {.cells = 64, .batch = 4},
                           ChunkedAttention<>{differs ? 8 : 16}})
          == expected);
    for (const int field : {0, 1, 2, 3, 4}) {
        StateLimits limits{.sequences = 2, .batch = 16, .rollback = 2, .checkpoints = 3, .snapshots = 2};
        if (differs && field == 0) limits.batch = 15;
        if (differs && field == 1) limits.checkpoint_interval = 8;
        if (differs && field == 2) limits.checkpoint_policy = CheckpointPolicy::newest;
        if (differs && field == 3) limits.unequal = Unequal::refuse;
        if (differs && field == 4) { // as many slots
            limits.rollback = 1;
            limits.snapshots = 4;
        }
        CHECK(violation(toy::Recurrent{{1, {{1}}}, limits}) == expected);
    }
    Rotating memory = rotating(comm);
    if (differs) add(memory, alice, 1);
    CHECK(violation(std::move(memory)) == expected);
}

TEST_CASE("a negative time limit of memories in lockstep is a violation") {
    Communicator comm{MPI_COMM_WORLD};
    CHECK(violation_of([&] {
              LockstepMemory{comm, rotating(comm), {.time_limit = -1ms}};
          })
          == "lockstep: a time limit of -1 ms, expected 0 or more");
}

TEST_CASE("another call on one rank is a violation that names it, with nothing changed") {
    Communicator comm{MPI_COMM_WORLD};
    const int other = comm.size() - 1;
    LockstepMemory memory{comm, rotating(comm), {.compares = true}};
    add(memory, alice, 10);
    const std::string before = contents(memory.memory());
    const std::string name = "rank " + std::to_string(other);
    const bool differs = comm.rank() == other;
    CHECK(has(violation_of([&] { (void)memory.remove(alice, Position{differs ? 8 : 9}, Position{10}); }),
              "remove(0, 9, 10) as operation 2: " + name + " called remove(0, 8, 10) as operation 2"));
    CHECK(has(violation_of([&] {
                  (void)memory.begin(BatchBuilder{differs ? bob : alice, Position{10}, 1});
              }),
              "begin(1 tokens) as operation 3: " + name));
    CHECK(has(violation_of([&] {
                  differs ? (void)memory.copy_prefix(alice, bob, Position{3})
                          : (void)memory.remove(alice, Position{20}, Position{-1});
              }),
              name + " called copy_prefix(0, 1, 3)"));
    CHECK(contents(memory.memory()) == before);

    // What was done to the memory behind its back.
    if (differs) REQUIRE(memory.memory().copy_prefix(alice, bob, Position{3}));
    CHECK(has(violation_of([&] { (void)memory.remove(alice, Position{9}, Position{10}); }),
              "the bookkeeping of " + name + " differs"));
}

TEST_CASE("a silent rank is named, and the memory of the others is whole") {
    Communicator comm{MPI_COMM_WORLD};
    const int silent = comm.size() - 1;
    LockstepMemory memory{comm, rotating(comm), {.compares = false, .time_limit = 200ms}};
    add(memory, alice, 10);
    if (comm.rank() != silent) {
        const std::string before = contents(memory.memory());
        const auto error_of = [&] {
            try {
                (void)memory.snapshot(alice);
            } catch (const mpi::MpiFailure& failure) {
                return failure.error();
            }
            return mpi::MpiError{};
        };
        CHECK(error_of() == mpi::MpiReason::timed_out);
        CHECK(error_of().rank == silent);
        CHECK_THROWS_AS((void)memory.begin(BatchBuilder{alice, Position{10}, 1}), mpi::MpiFailure);
        CHECK(memory.compare().error() == mpi::MpiReason::timed_out);
        Rotating whole = std::move(memory).release();
        CHECK(contents(whole) == before);
        add(whole, alice, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a hybrid is kept in lockstep with all its members") {
    Communicator comm{MPI_COMM_WORLD};
    LockstepMemory memory{comm, toy::memory({.full_capacity = 40, .checkpoints = 2}), {.compares = false}};
    CHECK(toy::feed(memory, toy::text(0, 0, 8)));
    CHECK(toy::feed(memory, toy::text(0, 8, 1) + toy::text(1, 0, 4)));
    CHECK(memory.agreements() == 0);
    CHECK(memory.begin(toy::batch_of(toy::text(0, 12, 1))).error() == Reason::not_next);
    const std::string before = toy::portrait(memory.memory());
    bool failed = false;
    try {
        const FailingAllocations failing{comm.rank() == 0 ? 0 : FailingAllocations::unlimited};
        (void)memory.schedule(Sequence{0}, Position{20});
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    CHECK(failed);
    CHECK(toy::portrait(memory.memory()) == before);
    CHECK(memory.compare());
    CHECK(memory.copy_prefix(Sequence{0}, Sequence{2}, Position{9}));
    CHECK(memory.compare());
}

} // namespace test_lockstep
