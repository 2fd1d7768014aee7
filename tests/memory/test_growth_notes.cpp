// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several ranks rely on two things: a first phase that allocates notes it, and equal bookkeeping has equal hashes.
#include "../hybrid/failing_allocations.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <random>

namespace test_growth_notes {

using namespace cellar;

namespace {

struct Sum : StateTensor<1> {};

using Keys = Cache<StandardV<float>, SlidingWindow<8>, RopeShift<>>;
using States1 = RecurrentMemory<States<Sum>>;

std::uint64_t hash(const auto& memory) {
    return MemoryAccess::book_hash(memory);
}

/// Counts the operations that allocated, and expects each to have noted it, and no other to have changed anything.
class Notes {
public:
    template <class M, class Operation>
    void run(const M& memory, Operation operation) {
        const std::uint64_t book = hash(memory);
        const std::uint64_t before = detail::growths;
        try {
            const FailingAllocations failing{0};
            operation();
            return;
        } catch (const std::bad_alloc&) {}
        CHECK(detail::growths != before);
        CHECK(hash(memory) == book);
        ++allocated_;
        operation();
    }
    int allocated() const { return allocated_; }

private:
    int allocated_ = 0;
};

template <class M>
void add(M& memory, Notes& notes, Sequence s, std::int32_t tokens) {
    const Tokens batch{s, memory.next(s), tokens};
    notes.run(memory, [&] {
        if (auto pass = memory.begin(batch)) pass->drop();
    });
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
void use(M& memory, Notes& notes, int steps) {
    std::mt19937 draw{20261123};
    const auto below = [&](std::int32_t n) {
        return n <= 0 ? 0 : static_cast<std::int32_t>(draw() % static_cast<unsigned>(n));
    };
    for (int i = 0; i < steps; ++i) {
        const Sequence s{below(memory.sequences())};
        const Position next = memory.next(s);
        switch (below(8)) {
        default:
            add(memory, notes, s, 1 + below(2));
            break;
        case 4:
            notes.run(memory,
                      [&, to = Sequence{below(memory.sequences())}] { (void)memory.copy_prefix(s, to, next.value); });
            break;
        case 5: {
            const Position begin{below(next.value)};
            notes.run(memory, [&] { (void)memory.remove(s, begin, begin + 1); });
            break;
        }
        case 6: {
            const Position begin{std::max(0, next.value - below(4))};
            notes.run(memory, [&] { (void)memory.remove(s, begin, to_end); });
            break;
        }
        case 7:
            notes.run(memory, [&, p = next + 1 + below(40)] { (void)memory.schedule(s, p); });
            notes.run(memory, [&] { memory.unschedule(s, next + 3); });
        }
    }
}

} // namespace

TEST_CASE("what a cache allocates in the first phase of an operation is noted") {
    for (const Placement placement : {Placement::blocks, Placement::scattered, Placement::contiguous}) {
        Keys memory{{1, 1, 4},
                    {.sequences = 4, .capacity = 60, .cells = 72, .batch = 2, .placement = placement},
                    SlidingWindow<8>{{.retention = 50}},
                    RopeShift<>{rope_frequencies(4)}};
        Notes notes;
        use(memory, notes, 3000);
        CHECK(notes.allocated() > 20);
    }
}

TEST_CASE("runs of single cells need more room than was planned, which is noted") {
    Cache<StandardV<float>> memory{
        {1, 1, 4}, {.sequences = 8, .capacity = 64, .cells = 128, .batch = 1, .placement = Placement::scattered}};
    Notes notes;
    for (int i = 0; i < 60; ++i)
        for (const Sequence s : {Sequence{0}, Sequence{1}}) add(memory, notes, s, 1);
    CHECK(notes.allocated() > 0);
    CHECK(notes.allocated() < 10);
}

TEST_CASE("cells that get memory are noted") {
    Cache<StandardV<float>> memory{{1, 1, 4}, {.sequences = 1, .capacity = 256, .initial_cells = 8, .batch = 16}};
    Notes notes;
    int grown = 0;
    for (int i = 0; i < 100; ++i) {
        const auto allocated = MemoryAccess::state(memory).allocated;
        const std::uint64_t before = detail::growths;
        add(memory, notes, {0}, 1);
        if (MemoryAccess::state(memory).allocated == allocated) continue;
        ++grown;
        CHECK(detail::growths != before);
    }
    CHECK(grown > 2);
}

TEST_CASE("what a recurrent memory allocates in the first phase of an operation is noted") {
    States1 memory{StateShape{1, {{3}}},
                   {.sequences = 3, .batch = 8, .rollback = 1, .checkpoints = 12, .checkpoint_interval = 2}};
    Notes notes;
    use(memory, notes, 2000);
    CHECK(notes.allocated() > 3);
}

TEST_CASE("decode steps that find room allocate nothing, and note nothing") {
    Cache<StandardV<float>> memory{{1, 1, 4}, {.sequences = 4, .capacity = 100, .batch = 16}};
    Notes notes;
    const std::uint64_t before = detail::growths;
    for (int i = 0; i < 80; ++i)
        for (std::int32_t s = 0; s < 4; ++s) add(memory, notes, {s}, 1);
    CHECK(notes.allocated() == 0);
    CHECK(detail::growths == before);
}

TEST_CASE("the hash of a memory depends on tokens, cells, snapshots and schedules, and on nothing else") {
    const auto make = [] {
        return Keys{{1, 1, 4},
                    {.sequences = 4, .capacity = 60, .cells = 72, .batch = 16},
                    SlidingWindow<8>{{.retention = 50}},
                    RopeShift<>{rope_frequencies(4)}};
    };
    Keys one = make();
    Keys other = make();
    Notes notes;
    for (Keys* memory : {&one, &other}) add(*memory, notes, {0}, 10);
    CHECK(hash(one) == hash(other));
    auto first = *one.snapshot({0});
    CHECK(hash(one) != hash(other));
    auto second = *one.snapshot({0}, {0}, {9});
    auto second_of_other = *other.snapshot({0}, {0}, {9});
    auto first_of_other = *other.snapshot({0});
    CHECK(hash(one) == hash(other)); // in another order
    one.page_out(first);
    CHECK(hash(one) != hash(other));
    other.page_out(first_of_other);
    CHECK(hash(one) == hash(other));
    CHECK(one.schedule({0}, {20}));
    CHECK(hash(one) != hash(other));
    CHECK(other.schedule({0}, {20}));
    CHECK(hash(one) == hash(other));
    CHECK(one.copy_prefix({0}, {1}, 4));
    CHECK(hash(one) != hash(other));
}

TEST_CASE("the hash of a recurrent memory depends on its states, checkpoints and snapshots") {
    const auto make = [] {
        return States1{StateShape{1, {{3}}},
                       {.sequences = 2, .batch = 8, .rollback = 2, .checkpoints = 4, .snapshots = 3}};
    };
    States1 one = make();
    States1 other = make();
    Notes notes;
    for (States1* memory : {&one, &other}) add(*memory, notes, {0}, 4);
    CHECK(hash(one) == hash(other));
    CHECK(one.checkpoint({0}));
    CHECK(hash(one) != hash(other));
    CHECK(other.checkpoint({0}));
    auto snapshot = *one.snapshot({0});
    CHECK(hash(one) != hash(other));
    auto of_other = *other.snapshot({0});
    CHECK(hash(one) == hash(other));
    one.page_out(snapshot);
    CHECK(hash(one) != hash(other));
}

} // namespace test_growth_notes
