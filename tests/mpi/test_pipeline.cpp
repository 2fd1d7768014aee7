// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../hybrid/failing_allocations.hpp"
#include "ranks.hpp"
#include "short_memory.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/pipeline_stage.hpp>
#include <cellar/mpi/shares.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mpi.h>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>
#include <violations.hpp>

/// Sets a flag while it exists.
class While {
public:
    explicit While(bool& flag) : flag_{flag} { flag_ = true; }
    ~While() { flag_ = false; }
    While(const While&) = delete;
    While& operator=(const While&) = delete;

private:
    bool& flag_;
};
static bool messages_stay = false;  // none is found to have left, as with a slow network
static bool messages_fail = false;  // none can be sent
static bool messages_alter = false; // on their way

// In front of MPI's own, which have a second name for this purpose.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    if (messages_alter) static_cast<char*>(const_cast<void*>(data))[count - 1] ^= 4;
    return messages_fail ? MPI_ERR_OTHER : PMPI_Isend(data, count, type, to, tag, comm, request);
}
extern "C" int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    if (!messages_stay) return PMPI_Test(request, done, status);
    *done = 0;
    return MPI_SUCCESS;
}

namespace test_pipeline {

using namespace cellar;
using namespace std::chrono_literals;
using mpi::Communicator;
using mpi::PipelineStage;
using mpi::Share;
using ranks::contents;
using ranks::has;
using ranks::same_on_all;
using ranks::ShortMemory;

namespace {

template <class Backend>
using KeysOf = Cache<StandardV<float>, SlidingWindow<8>, UnrotatedShift, Backend>;
using Keys = KeysOf<HostBackend>;
using Stage = PipelineStage<Keys>;

constexpr Sequence alice{0};
constexpr Sequence bob{1};

/// Each stage has other layers.
template <class Backend = HostBackend>
KeysOf<Backend> keys(const Communicator& comm,
                     const CacheLimits& limits = {.sequences = 2, .capacity = 64, .batch = 32}) {
    return {{.layers = 1 + comm.rank(), .kv_heads = 1, .head_dim = 2},
            limits,
            SlidingWindow<8>{{.retention = 30}},
            UnrotatedShift{}};
}

template <class Pass>
void fill(Pass& pass, int layers) {
    for (int layer = 0; layer < layers; ++layer) pass.local().mark_put(layer);
}

template <class M>
void add(PipelineStage<M>& stage, Sequence s, std::int32_t tokens) {
    auto pass = *stage.begin(BatchBuilder{s, stage.next(s), tokens});
    fill(pass, stage.layers());
    pass.commit();
}

/// What every stage but the first does.
template <class M>
int follow(PipelineStage<M>& stage) {
    int passes = 0;
    while (auto pass = stage.begin_received()) {
        fill(*pass, stage.layers());
        passes += pass->commit() ? 1 : 0;
    }
    return passes;
}

template <class Call>
std::string failure_of(Call call) {
    try {
        call();
    } catch (const mpi::MpiFailure& failure) {
        return failure.error().message;
    }
    return "none";
}

} // namespace

static_assert(MemoryPass<Stage::Pass> && !HasSnapshots<Stage> && !TwoPhaseSnapshots<Stage>);
template <class... Operations>
constexpr bool all_sent = (Stage::performs<Operations> && ...);
static_assert(all_sent<op::CopyPrefix, op::Remove, op::Rewind>);
static_assert(all_sent<op::Schedule, op::Unschedule, op::Promise, op::FormPages>);
static_assert(!Stage::performs<op::Snapshot>);
static_assert(!Stage::performs<op::Defragment>);

TEST_CASE("what the first stage does, all stages do") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm)};
    if (stage.is_first()) {
        add(stage, alice, 20);
        add(stage, alice, 1);
        CHECK(stage.begin(BatchBuilder{alice, Position{3}, 1}).error() == Reason::not_next); // sent to nobody
        { CHECK(stage.begin(BatchBuilder{bob, Position{0}, 5})); }                           // dropped
        CHECK(stage.copy_prefix(alice, bob, Position{12}));
        CHECK(stage.schedule(alice, Position{30}));
        add(stage, alice, 32);
        stage.unschedule(alice, Position{30});
        CHECK(stage.remove(alice, Position{40}, Position{42}));
        CHECK(stage.remove(bob, Position{10}, to_end));
        add(stage, bob, 3);
        stage.end();
    } else {
        CHECK(follow(stage) == 4);
    }
    CHECK(stage.next(alice) == Position{51});
    CHECK(stage.next(bob) == Position{13});
    CHECK(same_on_all(contents(stage.memory())));
}

TEST_CASE("the way back, promises and pages are those of all stages") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm)};
    if (stage.is_first()) {
        add(stage, alice, 20);
        CHECK(stage.rewind(alice, Position{21}).error() == Reason::not_next); // sent to nobody
        CHECK(stage.rewind(alice, Position{15}));
        CHECK(stage.promise(bob, 10));
        CHECK(stage.promise(alice, 100'000)); // what its window keeps, and a batch
        CHECK(stage.promise(bob, 100'000).error() == Reason::full);
        CHECK(stage.copy_prefix(alice, bob, Position{11}));
        CHECK(stage.form_pages(bob, 4)); // copies three tokens
        add(stage, bob, 3);
        stage.end();
    } else {
        CHECK(follow(stage) == 2);
    }
    CHECK(stage.next(alice) == Position{15});
    CHECK(stage.next(bob) == Position{14});
    CHECK(stage.memory().promised(bob) == 4);
    CHECK(same_on_all(contents(stage.memory())));
}

TEST_CASE("batches arrive with the ids of their tokens") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm)};
    const std::vector<std::int32_t> ids{5, 6, 7};
    const std::string over = "the pass is over, expected one that was not committed, dropped or moved from";
    if (stage.is_first()) {
        auto pass = *stage.begin(BatchBuilder{alice, Position{0}, 3}, ids);
        fill(pass, stage.layers());
        CHECK(pass.commit());
        CHECK(violation_of([&] { (void)pass.commit(); }) == over);
        stage.end();
    } else {
        auto pass = stage.begin_received();
        REQUIRE(pass);
        CHECK(pass->tokens() == 3);
        CHECK(std::vector<std::int32_t>(stage.received().ids().begin(), stage.received().ids().end()) == ids);
        fill(*pass, stage.layers());
        CHECK(pass->commit());
        CHECK(violation_of([&] { (void)pass->commit(); }) == over);
        CHECK(!stage.begin_received());
    }
}

TEST_CASE("decode steps allocate nothing, in no stage") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm, {.sequences = 2, .capacity = 256, .batch = 32}), {.time_limit = 20s}};
    const std::vector<std::int32_t> ids{7};
    std::vector<BatchBuilder> steps;
    for (std::int32_t p = 0; p < 200; ++p) steps.emplace_back(alice, Position{p}, 1);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (i > 60) MPI_Barrier(MPI_COMM_WORLD); // at first, the stages lag behind
        const FailingAllocations failing{i > 80 ? 0 : FailingAllocations::unlimited};
        if (stage.is_first()) {
            auto pass = *stage.begin(steps[i], ids);
            fill(pass, stage.layers());
            pass.commit();
        } else {
            auto pass = *stage.begin_received();
            fill(pass, stage.layers());
            pass.commit();
        }
    }
    CHECK(stage.next(alice) == Position{200});
}

TEST_CASE("a first stage that is short of memory for its messages has changed nothing") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{
        comm, keys(comm, {.sequences = 2, .capacity = 64, .initial_cells = 8, .batch = 32}), {.time_limit = 20s}};
    if (stage.is_first()) {
        add(stage, alice, 2);
        const std::string before = contents(stage.memory());
        // The message is longer than any before, and the others are asked.
        const BatchBuilder batch{alice, Position{2}, 5};
        CHECK(failures_of([&] { (void)stage.begin(batch); }, [&] { REQUIRE(contents(stage.memory()) == before); }) > 1);
        // Cells are needed, too.
        const BatchBuilder longer{alice, Position{2}, 30};
        CHECK(failures_of([&] { (void)stage.begin(longer); }, [&] { REQUIRE(contents(stage.memory()) == before); })
              > 1);
        add(stage, alice, 3);
        stage.end();
    } else {
        CHECK(follow(stage) == 2);
    }
    CHECK(stage.next(alice) == Position{5});
    CHECK(same_on_all(contents(stage.memory())));
}

TEST_CASE("a first stage has memory for its verdict before it asks, while none of its messages has left") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{
        comm, keys(comm, {.sequences = 2, .capacity = 64, .initial_cells = 8, .batch = 32}), {.time_limit = 20s}};
    if (stage.is_first()) {
        const While all_stay{messages_stay};
        const std::string before = contents(stage.memory());
        const BatchBuilder batch{alice, Position{0}, 30}; // needs cells, so the others are asked
        CHECK(failures_of([&] { (void)stage.begin(batch); }, [&] { REQUIRE(contents(stage.memory()) == before); })
              > comm.size());
        add(stage, alice, 3);
        stage.end();
    } else {
        CHECK(follow(stage) == 1);
    }
    CHECK(stage.next(alice) == Position{3});
    CHECK(same_on_all(contents(stage.memory())));
}

TEST_CASE("a later stage that is short of memory for a message goes on where it was") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm), {.time_limit = 20s}};
    Keys alone = keys(comm);
    std::vector<std::string> after{contents(alone)}; // each operation
    const auto add_alone = [&](Sequence s, std::int32_t tokens) {
        auto pass = *alone.begin(BatchBuilder{s, alone.next(s), tokens});
        for (int layer = 0; layer < alone.layers(); ++layer) pass.mark_put(layer);
        pass.commit();
        after.push_back(contents(alone));
    };
    add_alone(alice, 1);
    add_alone(alice, 32);
    CHECK(alone.copy_prefix(alice, bob, Position{12}));
    after.push_back(contents(alone));
    add_alone(bob, 20);
    const auto operation_of = [&](const std::string& found) {
        const auto at = std::ranges::find(after, found);
        REQUIRE(at != after.end());
        return static_cast<std::size_t>(at - after.begin());
    };

    if (stage.is_first()) {
        add(stage, alice, 1);
        add(stage, alice, 32); // longer than what the others have memory for
        CHECK(stage.copy_prefix(alice, bob, Position{12}));
        add(stage, bob, 20);
        stage.end();
    } else {
        int failures = 0;
        const auto next = [&] {
            std::size_t done = operation_of(contents(stage.memory()));
            for (int successes = 0;; ++successes) {
                try {
                    const FailingAllocations failing{successes};
                    return stage.begin_received();
                } catch (const std::bad_alloc&) {
                    // Operations that precede the pass may have been carried out, and remain so.
                    const std::size_t now = operation_of(contents(stage.memory()));
                    CHECK(now >= std::exchange(done, now));
                    REQUIRE(++failures < 50);
                }
            }
        };
        int passes = 0;
        while (auto pass = next()) {
            fill(*pass, stage.layers());
            const FailingAllocations failing{0};
            passes += pass->commit() ? 1 : 0;
        }
        CHECK(passes == 3);
        CHECK(failures > 0);
    }
    CHECK(stage.next(alice) == Position{33});
    CHECK(stage.next(bob) == Position{32});
    CHECK(same_on_all(contents(stage.memory())));
}

TEST_CASE("memory that is short in one stage is short in the first, and nothing has changed in any") {
    Communicator comm{MPI_COMM_WORLD};
    for (const int without : {0, comm.size() - 1}) {
        CAPTURE(without);
        PipelineStage stage{comm,
                            keys<ShortMemory>(comm, {.sequences = 2, .capacity = 64, .initial_cells = 8, .batch = 32})};
        const std::string before = contents(stage.memory());
        ShortMemory::is_short = comm.rank() == without;
        if (stage.is_first()) {
            CHECK_THROWS_AS((void)stage.begin(BatchBuilder{alice, Position{0}, 16}), std::bad_alloc);
            CHECK(contents(stage.memory()) == before);
            ShortMemory::is_short = false;
            add(stage, alice, 4);
            stage.end();
        } else {
            // The first stage sends nothing if it is short itself.
            auto pass = stage.begin_received();
            REQUIRE(pass);
            CHECK(pass->tokens() == 4);
            fill(*pass, stage.layers());
            CHECK(pass->commit());
            CHECK(!stage.begin_received());
            ShortMemory::is_short = false;
        }
        // From now on the stages ask each other.
        if (stage.is_first()) {
            add(stage, alice, 20);
            stage.end();
        } else {
            CHECK(follow(stage) == 1);
        }
        CHECK(stage.next(alice) == Position{24});
        CHECK(same_on_all(contents(stage.memory())));
    }
}

TEST_CASE("a stage that refuses what the first one accepts refuses for all, if it is asked") {
    Communicator comm{MPI_COMM_WORLD};
    const int last = comm.size() - 1;
    const CacheLimits limits{.sequences = 2, .cells = comm.rank() == last ? 64 : 128, .batch = 100};
    {
        Stage stage{comm, keys(comm, limits), {.asks_always = true}};
        if (stage.is_first()) {
            add(stage, alice, 40);
            CHECK(stage.begin(BatchBuilder{alice, Position{40}, 50}).error() == Reason::full);
            add(stage, alice, 2);
            stage.end();
        } else {
            CHECK(follow(stage) == 2);
        }
        CHECK(stage.next(alice) == Position{42});
    }
    Stage stage{comm, keys(comm, limits), {.time_limit = 500ms}};
    if (stage.is_first()) add(stage, alice, 80);
    if (comm.rank() == last) {
        CHECK(has(failure_of([&] { (void)stage.begin_received(); }), "refuses operation 1"));
        CHECK(has(failure_of([&] { (void)stage.begin_received(); }), "refuses operation 1"));
        Keys whole = std::move(stage).release();
        CHECK(whole.next(alice) == Position{0});
    } else if (!stage.is_first()) {
        auto pass = stage.begin_received();
        fill(*pass, stage.layers());
        CHECK(pass->commit());
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a sequence goes on from snapshots that every stage has of its own memory") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{Communicator{MPI_COMM_WORLD}, keys(comm)};
    const auto until_end = [&](auto first) {
        if (!stage.is_first()) return static_cast<void>(follow(stage));
        first();
        stage.end();
    };
    until_end([&] { add(stage, alice, 12); });
    // [stage_snapshot]
    const auto snapshot = stage.memory().snapshot(alice); // in every stage, after `end`
    // [/stage_snapshot]
    REQUIRE(snapshot);
    until_end([&] {
        add(stage, alice, 5);
        CHECK(stage.remove(alice, Position{8}, to_end));
    });
    REQUIRE(stage.memory().restore(bob, *snapshot));
    until_end([&] { add(stage, bob, 3); });
    CHECK(stage.next(alice) == Position{8});
    CHECK(stage.next(bob) == Position{15});
    CHECK(same_on_all(contents(stage.memory())));
}

TEST_CASE("a stage that drops a pass alone cannot go on, and a silent stage is named") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm), {.time_limit = 300ms}};
    if (stage.is_first()) {
        add(stage, alice, 4);
    } else {
        { auto pass = stage.begin_received(); }
        CHECK(has(failure_of([&] { (void)stage.begin_received(); }), "dropped a pass that the first stage committed"));
        Keys whole = std::move(stage).release();
        CHECK(whole.next(alice) == Position{0});
    }
    MPI_Barrier(MPI_COMM_WORLD);
    Stage waiting{comm, keys(comm), {.time_limit = 300ms}};
    if (!waiting.is_first())
        CHECK(failure_of([&] { (void)waiting.begin_received(); })
              == "pipeline: rank " + std::to_string(comm.rank() - 1) + " has sent nothing within the time limit");
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a pass whose commit fails is dropped, in every stage") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm), {.time_limit = 300ms}};
    const auto expect_dropped = [&](auto& pass, const char* words) {
        fill(pass, stage.layers());
        CHECK(has(failure_of([&] { (void)pass.commit(); }), words));
        Keys whole = std::move(stage).release();
        CHECK(whole.next(alice) == Position{0});
        CHECK(whole.begin(BatchBuilder{alice, Position{0}, 1}).has_value()); // no pass is open
    };
    if (stage.is_first()) {
        auto pass = stage.begin(BatchBuilder{alice, Position{0}, 4}).value();
        const While all_fail{messages_fail};
        expect_dropped(pass, "pipeline");
    } else {
        auto pass = stage.begin_received().value();
        expect_dropped(pass, "has sent nothing within the time limit");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("an altered message is noticed, and its sender named") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm), {.time_limit = 20s}};
    if (stage.is_first()) {
        const While all_alter{messages_alter};
        { const auto pass = stage.begin(BatchBuilder{alice, Position{0}, 4}).value(); }
    } else if (comm.rank() == 1) {
        for (int i = 0; i < 2; ++i)
            CHECK(failure_of([&] { (void)stage.begin_received(); })
                  == "pipeline: a message of rank 0: its checksum does not match");
        Keys whole = std::move(stage).release();
        CHECK(whole.next(alice) == Position{0});
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("operations of the wrong stage are violations") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm)};
    if (stage.is_first()) {
        CHECK(has(violation_of([&] { (void)stage.begin_received(); }), "expected another one"));
    } else {
        CHECK(has(violation_of([&] {
                      (void)stage.begin(BatchBuilder{alice, Position{0}, 1});
                  }),
                  "begin: this is stage"));
        CHECK(has(violation_of([&] { stage.end(); }), "end: this is stage"));
        const std::string text =
            ": this is stage " + std::to_string(comm.rank()) + ", expected the first one, which decides";
        CHECK(violation_of([&] { (void)stage.copy_prefix(alice, bob, Position{1}); }) == "copy_prefix" + text);
        CHECK(violation_of([&] { (void)stage.remove(alice, Position{0}, Position{1}); }) == "remove" + text);
        CHECK(violation_of([&] { (void)stage.remove(alice, Position{0}, Position{1}, RotateBy{1}); })
              == "remove" + text);
        CHECK(violation_of([&] { (void)stage.schedule(alice, Position{1}); }) == "schedule" + text);
        CHECK(violation_of([&] { stage.unschedule(alice, Position{1}); }) == "unschedule" + text);
    }
}

TEST_CASE("a negative time limit of a pipeline is a violation") {
    Communicator comm{MPI_COMM_WORLD};
    CHECK(violation_of([&] {
              Stage{comm, keys(comm), {.time_limit = -1ms}};
          })
          == "pipeline: a time limit of -1 ms, expected 0 or more");
}

TEST_CASE("an open pass ends before the next operation, in every stage") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm)};
    if (stage.is_first()) {
        {
            const auto pass = stage.begin(BatchBuilder{alice, Position{0}, 1}).value(); // dropped
            CHECK(has(violation_of([&] { stage.end(); }), "end: a pass is open"));
        }
        stage.end();
    } else {
        {
            const auto pass = stage.begin_received().value();
            CHECK(has(violation_of([&] { (void)stage.begin_received(); }), "begin_received: a pass is open"));
        }
        CHECK_FALSE(stage.begin_received());
    }
    const Stage moved = std::move(stage);
    CHECK(has(violation_of([&] { (void)stage.is_first(); }), "moved from"));
    CHECK(has(violation_of([&] { stage.end(); }), "moved from"));
}

TEST_CASE("stages that lag behind stay the same over random operations") {
    Communicator comm{MPI_COMM_WORLD};
    Stage stage{comm, keys(comm, {.sequences = 2, .capacity = 64, .initial_cells = 8, .batch = 32})};
    if (stage.is_first()) {
        std::mt19937 draw{20261123};
        for (int i = 0; i < 400; ++i) {
            const Sequence s{static_cast<std::int32_t>(draw() % 2)};
            const auto n = static_cast<std::int32_t>(draw() % 12);
            const Position next = stage.next(s);
            switch (draw() % 8) {
            default: {
                auto pass = stage.begin(BatchBuilder{s, next, n});
                if (!pass) continue;
                fill(*pass, stage.layers());
                if (n != 3) pass->commit();
                break;
            }
            case 5:
                (void)stage.remove(s, Position{next.value / 2}, Position{next.value / 2 + n});
                break;
            case 6:
                (void)stage.copy_prefix(s, Sequence{1 - s.value}, Position{next.value - 1 < 0 ? 0 : next.value - 1});
                break;
            case 7:
                (void)stage.remove(s, Position{std::max(0, next.value - n)}, to_end);
            }
        }
        stage.end();
    } else {
        CHECK(follow(stage) > 100);
    }
    CHECK(same_on_all(contents(stage.memory())));
}

namespace {

constexpr int dim = 8;
constexpr int heads = 2;

/// Stands for a model: each layer attends to what the layer before made of the tokens.
template <class Pass>
void compute(Pass& pass, Share part, std::vector<float>& x) {
    for (int layer = 0; layer < part.count; ++layer) {
        std::vector<float> y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i)
            y[i] = std::sin(x[i] * static_cast<float>(part.first + layer + 2) + static_cast<float>(i % 5));
        pass.put(layer, y, x);
        attend(pass, layer, x, y);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    }
}

std::vector<float> embedded(Position first, std::int32_t tokens) {
    std::vector<float> x;
    for (std::int32_t i = 0; i < tokens * heads * dim; ++i)
        x.push_back(std::cos(static_cast<float>(first.value * heads * dim + i)));
    return x;
}

} // namespace

TEST_CASE("layers divided over ranks compute what one process computes") {
    Communicator comm{MPI_COMM_WORLD};
    using Cached = Cache<StandardV<float>>;
    const CacheShape model{.layers = 7, .kv_heads = heads, .head_dim = dim};
    const CacheLimits limits{.sequences = 1, .capacity = 100, .batch = 16};
    // [stage]
    const Share part = mpi::layers_of(comm.rank(), comm.size(), model.layers);
    PipelineStage stage{comm, Cached{mpi::shape_of_layers(model, part), limits}};
    // [/stage]
    const std::vector<std::int32_t> batches{10, 16, 1, 1, 1};

    std::deque<std::vector<float>> sent; // messages under way
    std::vector<MPI_Request> requests;
    const auto send_on = [&](const std::vector<float>& x) {
        if (stage.is_last()) return;
        sent.push_back(x);
        MPI_Isend(sent.back().data(), static_cast<int>(x.size()), MPI_FLOAT, comm.rank() + 1, 0, MPI_COMM_WORLD,
                  &requests.emplace_back());
    };
    std::vector<std::vector<float>> results;
    // [pipeline]
    if (stage.is_first()) {
        for (const std::int32_t n : batches) { // the next one, while the other stages compute this one
            std::vector<float> x = embedded(stage.next(alice), n);
            auto pass = *stage.begin(BatchBuilder{alice, stage.next(alice), n});
            compute(pass.local(), part, x);
            send_on(x);
            pass.commit();
            results.push_back(x);
        }
        stage.end();
    } else {
        while (auto pass = stage.begin_received()) {
            std::vector<float> x(static_cast<std::size_t>(pass->tokens() * heads * dim));
            MPI_Recv(x.data(), static_cast<int>(x.size()), MPI_FLOAT, comm.rank() - 1, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            compute(pass->local(), part, x);
            send_on(x);
            pass->commit();
            results.push_back(x);
        }
    }
    // [/pipeline]
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);

    if (!stage.is_last()) return;
    Cached whole{model, limits};
    REQUIRE(results.size() == batches.size());
    for (std::size_t i = 0; i < batches.size(); ++i) {
        std::vector<float> x = embedded(whole.next(alice), batches[i]);
        auto pass = *whole.begin(BatchBuilder{alice, whole.next(alice), batches[i]});
        compute(pass, {0, model.layers}, x);
        pass.commit();
        CHECK(x == results[i]);
    }
}

} // namespace test_pipeline
