// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several ranks rely on two things: a first phase that allocates says so, and equal bookkeeping has equal hashes.
#include "../hybrid/failing_allocations.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <random>
#include <utility>

namespace test_attempts {

using namespace cellar;

namespace {

struct Sum : StateTensor<1> {};

using Keys = Cache<StandardV<float>, SlidingWindow<8>, RopeShift<>>;
using States1 = RecurrentMemory<States<Sum>>;

std::uint64_t hash(const auto& memory) {
    return MemoryAccess::book_hash(memory);
}

/// Counts the first phases that allocated, and expects each to say so, and none to change anything.
class Attempts {
public:
    /// Whether the first phase allocated.
    template <class M, class Operation>
    bool prepare(M& memory, const Operation& operation) {
        const std::uint64_t book = hash(memory);
        bool allocates = false;
        try {
            const FailingAllocations failing{0};
            static_cast<void>(memory.prepare(operation));
        } catch (const std::bad_alloc&) {
            allocates = true;
        }
        CHECK(hash(memory) == book);
        if (!allocates) return false;
        const auto attempt = memory.prepare(operation);
        CHECK(attempt.allocated);
        CHECK(hash(memory) == book);
        ++allocated_;
        return true;
    }
    /// The same, and both phases. False if it was refused.
    template <class M, class Operation>
    bool run(M& memory, const Operation& operation) {
        prepare(memory, operation);
        auto attempt = memory.prepare(operation);
        if (attempt) memory.finish(*std::move(attempt));
        return attempt.has_value();
    }
    int allocated() const { return allocated_; }

private:
    int allocated_ = 0;
};

template <class M>
void add(M& memory, Attempts& attempts, Sequence s, std::int32_t tokens) {
    const BatchBuilder batch{s, memory.next(s), tokens};
    attempts.prepare(memory, op::Begin{batch});
    auto pass = memory.begin(batch);
    if (!pass) return;
    for (int layer = 0; layer < memory.layers(); ++layer) {
        if constexpr (requires { pass->mark_put(layer); }) {
            pass->mark_put(layer);
        } else {
            for (const MicroBatch& micro_batch : pass->micro_batches()) {
                static_cast<void>(pass->template get<Sum>(layer, micro_batch));
                pass->put(layer, micro_batch);
            }
        }
    }
    pass->commit();
}

template <class M>
void use(M& memory, Attempts& attempts, int steps) {
    std::mt19937 draw{20261123};
    const auto below = [&](std::int32_t n) {
        return n <= 0 ? 0 : static_cast<std::int32_t>(draw() % static_cast<unsigned>(n));
    };
    for (int i = 0; i < steps; ++i) {
        const Sequence s{below(memory.sequences())};
        const Position next = memory.next(s);
        switch (below(8)) {
        default:
            add(memory, attempts, s, 1 + below(2));
            break;
        case 4:
            attempts.run(memory, op::CopyPrefix{s, Sequence{below(memory.sequences())}, next});
            break;
        case 5: {
            const Position begin{below(next.value)};
            attempts.run(memory, op::Remove{s, begin, begin + 1});
            break;
        }
        case 6: {
            const Position begin{std::max(0, next.value - below(4))};
            if (below(2) == 0) {
                attempts.run(memory, op::Remove{s, begin, to_end});
            } else {
                attempts.run(memory, op::Rewind{s, begin});
            }
            break;
        }
        case 7:
            attempts.run(memory, op::Schedule{s, next + 1 + below(40)});
            attempts.run(memory, op::Unschedule{s, next + 3});
        }
    }
}

} // namespace

TEST_CASE("a cache says what the first phase of an operation allocates") {
    for (const Placement placement : {Placement::blocks, Placement::scattered, Placement::contiguous}) {
        Keys memory{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                    {.sequences = 4, .capacity = 60, .cells = 72, .batch = 2, .placement = placement},
                    SlidingWindow<8>{{.retention = 50}},
                    RopeShift<>{rope_frequencies(4)}};
        Attempts attempts;
        use(memory, attempts, 3000);
        CHECK(attempts.allocated() > 20);
    }
}

TEST_CASE("runs of single cells need more room than was planned, which a cache says") {
    Cache<StandardV<float>> memory{
        {.layers = 1, .kv_heads = 1, .head_dim = 4},
        {.sequences = 8, .capacity = 64, .cells = 128, .batch = 1, .placement = Placement::scattered}};
    Attempts attempts;
    for (int i = 0; i < 60; ++i)
        for (const Sequence s : {Sequence{0}, Sequence{1}}) add(memory, attempts, s, 1);
    CHECK(attempts.allocated() > 0);
    CHECK(attempts.allocated() < 10);
}

TEST_CASE("a cache says that cells get memory") {
    Cache<StandardV<float>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                                   {.sequences = 1, .capacity = 256, .initial_cells = 8, .batch = 16}};
    Attempts attempts;
    int grown = 0;
    for (int i = 0; i < 100; ++i) {
        const auto allocated = MemoryAccess::state(memory).stores.cells();
        const bool says_so = memory.prepare(op::Begin{BatchBuilder{Sequence{0}, memory.next(Sequence{0})}}).allocated;
        if (MemoryAccess::state(memory).stores.cells() != allocated) {
            ++grown;
            CHECK(says_so);
        }
        add(memory, attempts, Sequence{0}, 1);
    }
    CHECK(grown > 2);
}

TEST_CASE("a recurrent memory says what the first phase of an operation allocates") {
    States1 memory{StateShape{1, {{3}}},
                   {.sequences = 3, .batch = 8, .rollback = 1, .checkpoints = 12, .checkpoint_interval = 2}};
    Attempts attempts;
    use(memory, attempts, 2000);
    CHECK(attempts.allocated() > 3);
}

TEST_CASE("decode steps that find room allocate nothing, and say so") {
    Cache<StandardV<float>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                                   {.sequences = 4, .capacity = 100, .batch = 16}};
    Attempts attempts;
    for (int i = 0; i < 80; ++i) {
        for (std::int32_t s = 0; s < 4; ++s) {
            CHECK(!memory.prepare(op::Begin{BatchBuilder{Sequence{s}, memory.next(Sequence{s})}}).allocated);
            add(memory, attempts, Sequence{s}, 1);
        }
    }
    CHECK(attempts.allocated() == 0);
}

TEST_CASE("inputs of an encoder: their memory says what the first phase of an operation allocates") {
    EncoderMemory<> memory{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                           {.sequences = 8, .cells = 128, .batch = 2, .placement = Placement::scattered}};
    Attempts attempts;
    for (int i = 0; i < 60; ++i) {
        for (const Sequence s : {Sequence{0}, Sequence{1}}) {
            auto pass = memory.write(s, Position{i}, 1);
            REQUIRE(pass);
            pass->mark_put(0);
            pass->commit();
        }
        attempts.prepare(memory, op::Begin{BatchBuilder{Sequence{0}, Position{i}}});
        attempts.run(memory, op::CopyPrefix{Sequence{0}, Sequence{2}, Position{i}});
    }
    CHECK(attempts.allocated() > 0);
}

TEST_CASE("a hybrid says what a member allocated before another one refused") {
    // A removal with a gap: the cache makes room for it, and the recurrent memory refuses.
    using Both = Hybrid<Repeat<Keys, States1>, Keys, States1>;
    Both memory{2,
                Keys{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                     {.sequences = 1, .capacity = 60, .batch = 16},
                     SlidingWindow<8>{{.retention = 50}},
                     RopeShift<>{rope_frequencies(4)}},
                States1{StateShape{1, {{3}}}, {.sequences = 1, .batch = 16}}};
    {
        auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 10});
        REQUIRE(pass);
        pass->of<Keys>().mark_put(0);
        for (const MicroBatch& micro_batch : pass->of<States1>().micro_batches()) {
            static_cast<void>(pass->of<States1>().get<Sum>(0, micro_batch));
            pass->of<States1>().put(0, micro_batch);
        }
        pass->commit();
    }
    const auto refused = memory.prepare(op::Remove{Sequence{0}, Position{2}, Position{3}});
    CHECK(refused.error() == Refusal{Reason::cannot_cut, 1});
    CHECK(refused.allocated);
    const auto nothing = memory.prepare(op::Remove{Sequence{0}, Position{10}, Position{11}});
    CHECK(nothing.has_value());
    CHECK(!nothing.allocated);
    CHECK(!memory.prepare(op::Begin{BatchBuilder{Sequence{0}, Position{12}}}).allocated); // refused by the first member
}

TEST_CASE("the hash of a memory depends on tokens, cells, snapshots and schedules, and on nothing else") {
    const auto make = [] {
        return Keys{{.layers = 1, .kv_heads = 1, .head_dim = 4},
                    {.sequences = 4, .capacity = 60, .cells = 72, .batch = 16},
                    SlidingWindow<8>{{.retention = 50}},
                    RopeShift<>{rope_frequencies(4)}};
    };
    Keys one = make();
    Keys other = make();
    Attempts attempts;
    for (Keys* memory : {&one, &other}) add(*memory, attempts, Sequence{0}, 10);
    CHECK(hash(one) == hash(other));
    auto first = *one.snapshot(Sequence{0});
    CHECK(hash(one) != hash(other));
    auto second = *one.snapshot(Sequence{0}, Position{0}, Position{9});
    auto second_of_other = *other.snapshot(Sequence{0}, Position{0}, Position{9});
    auto first_of_other = *other.snapshot(Sequence{0});
    CHECK(hash(one) == hash(other)); // in another order
    one.offload(first);
    CHECK(hash(one) != hash(other));
    other.offload(first_of_other);
    CHECK(hash(one) == hash(other));
    CHECK(one.schedule(Sequence{0}, Position{20}));
    CHECK(hash(one) != hash(other));
    CHECK(other.schedule(Sequence{0}, Position{20}));
    CHECK(hash(one) == hash(other));
    CHECK(one.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    CHECK(hash(one) != hash(other));
}

TEST_CASE("the hash of a recurrent memory depends on its states, checkpoints and snapshots") {
    const auto make = [] {
        return States1{StateShape{1, {{3}}},
                       {.sequences = 2, .batch = 8, .rollback = 2, .checkpoints = 4, .snapshots = 3}};
    };
    States1 one = make();
    States1 other = make();
    Attempts attempts;
    for (States1* memory : {&one, &other}) add(*memory, attempts, Sequence{0}, 4);
    CHECK(hash(one) == hash(other));
    CHECK(one.checkpoint(Sequence{0}));
    CHECK(hash(one) != hash(other));
    CHECK(other.checkpoint(Sequence{0}));
    auto snapshot = *one.snapshot(Sequence{0});
    CHECK(hash(one) != hash(other));
    auto of_other = *other.snapshot(Sequence{0});
    CHECK(hash(one) == hash(other));
    one.offload(snapshot);
    CHECK(hash(one) != hash(other));
}

} // namespace test_attempts
