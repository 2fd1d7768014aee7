// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrent/folding.hpp"
#include "violations.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace test_operations {

using namespace recurrent_test;
using cellar::Reason;
using cellar::to_end;

TEST_CASE("rollback: the last states are kept, and a sequence can go back to any of them") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 16, .rollback = 3}};
    REQUIRE(feed(memory, text(0, 0, 10)));
    CHECK(kept(memory, 0) == std::vector<int>{7, 8, 9, 10});
    REQUIRE(feed(memory, text(0, 10, 1, 11)));
    CHECK(kept(memory, 0) == std::vector<int>{8, 9, 10, 11});
    for (int p = 0; p <= 12; ++p) {
        CHECK(memory.can_resume(cellar::Sequence{0}, Position{p}) == (p == 0 || (p >= 8 && p <= 11)));
        CHECK(memory.resumable_prefix(cellar::Sequence{0}, Position{p}).value == (p < 8 ? 0 : p > 11 ? 11 : p));
    }
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{9}, to_end));
    CHECK(kept(memory, 0) == std::vector<int>{8, 9});
    REQUIRE(feed(memory, {{0, 9, 77}}));
    CHECK(numbers(memory, memory.state(cellar::Sequence{0})) == numbers_after({1, 2, 3, 4, 5, 6, 7, 8, 9, 77}));
    CHECK(kept(memory, 0) == std::vector<int>{8, 9, 10});
}

TEST_CASE("rollback: drafted tokens can be rejected, round after round") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 4, .rollback = 3}};
    std::vector<int> accepted;
    for (int round = 0; round < 40; ++round) {
        const auto at = static_cast<int>(accepted.size());
        REQUIRE(feed(memory, text(0, at, 4, 10 * round)));
        const int kept = 1 + round % 4;
        REQUIRE(memory.remove(cellar::Sequence{0}, Position{at + kept}, to_end));
        for (int i = 0; i < kept; ++i) accepted.push_back(10 * round + i);
        CHECK(numbers(memory, memory.state(cellar::Sequence{0})) == numbers_after(accepted));
    }
}

TEST_CASE("remove: everything or nothing can be removed; other ranges are refused without a change") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 16, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 6)));
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{6}));
    const auto before = memory.statistics();
    const auto refusal = [&](int begin, Position end) {
        return refusal_of(memory, [&] { return memory.remove(cellar::Sequence{0}, Position{begin}, end); });
    };
    CHECK(refusal(3, to_end) == Reason::cannot_rewind);
    CHECK(to_string(refusal(3, to_end))
          == "cannot rewind: no recurrent state is kept at that position; asked for position 3, possible is 0");
    const auto rewound = refusal_of(memory, [&] { return memory.rewind(cellar::Sequence{0}, Position{8}); });
    CHECK(rewound.needed == 8);
    CHECK(rewound.available == 6);
    CHECK(refusal(3, Position{6}) == Reason::cannot_rewind);
    CHECK(refusal(2, Position{4}) == Reason::cannot_cut);
    CHECK(refusal(0, Position{2}) == Reason::cannot_cut);
    CHECK(refusal(0, Position{5}) == Reason::cannot_cut);
    CHECK(memory.remove(cellar::Sequence{0}, Position{2}, Position{2}).has_value());
    CHECK(memory.remove(cellar::Sequence{0}, Position{6}, to_end).has_value());
    CHECK(memory.remove(cellar::Sequence{0}, Position{9}, Position{12}).has_value());
    CHECK(memory.statistics() == before);
    CHECK(kept(memory, 0) == std::vector<int>{5, 6});
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, Position{6}));
    CHECK(memory.kept(cellar::Sequence{0}).empty());
    CHECK(holds(memory, 1, 6, words(6)));
    REQUIRE(feed(memory, text(0, 0, 2, 90))); // starts from zeros, in a used slot
    CHECK(holds(memory, 0, 2, words(2, 90)));
    CHECK(violation_of([&] { (void)memory.remove(cellar::Sequence{0}, Position{3}, Position{2}); })
          == "remove: positions [3, 2), expected 0 <= begin <= end");
    CHECK(violation_of([&] { (void)memory.remove(cellar::Sequence{2}, Position{0}, Position{2}); })
          == "sequence 2, expected 0 to 1");
    CHECK(violation_of([&] { (void)memory.rewind(cellar::Sequence{0}, Position{-1}); })
          == "rewind: position -1, expected 0 or more");
    CHECK(violation_of([&] { (void)memory.can_resume(cellar::Sequence{0}, Position{-1}); })
          == "can_resume: position -1, expected 0 or more");
    CHECK(violation_of([&] { (void)memory.resumable_prefix(cellar::Sequence{0}, Position{-1}); })
          == "resumable_prefix: position -1, expected 0 or more");
    CHECK(holds(memory, 0, 2, words(2, 90)));
}

TEST_CASE("copy_prefix: states are shared until a sequence continues") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 16, .rollback = 2}};
    REQUIRE(feed(memory, text(0, 0, 6)));
    REQUIRE(feed(memory, text(1, 0, 3, 40)));
    const auto before = memory.statistics().used;
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{6}));
    CHECK(kept(memory, 1) == std::vector<int>{4, 5, 6});
    CHECK(memory.state(cellar::Sequence{1}) == memory.state(cellar::Sequence{0}));
    CHECK(memory.statistics().used == before - 3); // the states of sequence 1 are free, and nothing was copied
    REQUIRE(feed(memory, text(1, 6, 1, 99)));
    CHECK(holds(memory, 0, 6, words(6)));
    CHECK(numbers(memory, memory.state(cellar::Sequence{1})) == numbers_after({1, 2, 3, 4, 5, 6, 99}));
    REQUIRE(feed(memory, text(0, 6, 1, 7)));
    CHECK(holds(memory, 0, 7, words(7)));
    CHECK(numbers(memory, memory.state(cellar::Sequence{1})) == numbers_after({1, 2, 3, 4, 5, 6, 99}));
    CHECK(violation_of([&] { (void)memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{-1}); })
          == "copy_prefix: up to position -1, expected 0 or more");
    CHECK(violation_of([&] { (void)memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{3}, Position{1}); })
          == "sequence 3, expected 0 to 2");
}

TEST_CASE("handles: a state can be read in place as long as it is kept") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 16}};
    CHECK(violation_of([&] { memory.state(cellar::Sequence{0}); })
          == "state: sequence 0 has no state, expected one with tokens");
    CHECK(violation_of([&] { memory.view<Wide>(0, {}); })
          == "view: generation 0 of the state in slot -1 is not kept, expected a handle to a kept state");
    CHECK(violation_of([&] {
              memory.view<Wide>(0, {0, 0});
          }) // that slot never held a state
          == "view: generation 0 of the state in slot 0 is not kept, expected a handle to a kept state");
    REQUIRE(feed(memory, text(0, 0, 3)));
    const cellar::StateHandle handle = memory.state(cellar::Sequence{0});
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{3}));
    REQUIRE(feed(memory, text(0, 3, 1, 4)));
    CHECK(numbers(memory, handle) == numbers_after(words(3))); // sequence 1 keeps it
    CHECK(memory.state(cellar::Sequence{1}) == handle);
    REQUIRE(memory.remove(cellar::Sequence{1}, Position{0}, to_end));
    const std::string gone = violation_of([&] { memory.view<Wide>(0, handle); });
    CHECK(gone == "view: generation 0 of the state in slot 0 is not kept, expected a handle to a kept state");
    REQUIRE(feed(memory, text(1, 0, 1))); // the slot has another state now
    CHECK(memory.state(cellar::Sequence{1}).slot == handle.slot);
    CHECK(violation_of([&] { memory.view<Wide>(0, handle); }) == gone);
    CHECK(violation_of([&] {
              memory.view<Wide>(0, {99, 0});
          })
          == "view: generation 0 of the state in slot 99 is not kept, expected a handle to a kept state");
    CHECK(violation_of([&] { memory.view<Wide>(2, memory.state(cellar::Sequence{1})); })
          == "view: layer 2, expected 0 to 1");
}

TEST_CASE("handles: only a state that is kept at the position has one") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 16, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(feed(memory, text(0, 3, 1, 4)));
    CHECK(kept(memory, 0) == std::vector<int>{3, 4});
    CHECK(numbers(memory, memory.state(cellar::Sequence{0}, Position{3})) == numbers_after(words(3)));
    CHECK(memory.state(cellar::Sequence{0}, Position{4}) == memory.state(cellar::Sequence{0}));
    for (const int p : {-1, 0, 2, 5})
        CHECK(violation_of([&] { memory.state(cellar::Sequence{0}, Position{p}); })
              == "state: sequence 0 at position " + std::to_string(p) + ", expected one of the positions of kept(s)");
    CHECK(violation_of([&] { memory.state(cellar::Sequence{1}, Position{0}); })
          == "state: sequence 1 at position 0, expected one of the positions of kept(s)");
    CHECK(violation_of([&] { memory.state(cellar::Sequence{2}, Position{3}); }) == "sequence 2, expected 0 to 1");
}

TEST_CASE("slots: there are enough for a batch of all sequences, with everything kept") {
    for (const int batch : {1, 3, 7, 40}) {
        for (const int rollback : {0, 2}) {
            CAPTURE(batch);
            CAPTURE(rollback);
            Folding<> memory{
                shape(),
                {.sequences = 6, .batch = batch, .rollback = rollback, .checkpoints = 4, .checkpoint_interval = 2}};
            std::vector<int> fed(6, 0);
            for (int round = 0; round < 60; ++round) {
                std::vector<Token> tokens;
                for (int i = 0; i < batch; ++i) {
                    const auto s = static_cast<std::size_t>((round + i) % 6);
                    tokens.push_back({static_cast<int>(s), fed[s], fed[s] + 1});
                    ++fed[s];
                }
                REQUIRE(feed(memory, tokens));
            }
            for (int s = 0; s < 6; ++s) {
                const int n = fed[static_cast<std::size_t>(s)];
                if (n > 0) CHECK(holds(memory, s, n, words(n)));
            }
        }
    }
}

TEST_CASE("overview: bytes, slots and limits are as documented") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 3, .rollback = 1, .checkpoints = 1}};
    static_assert(Folding<>::bytes_per_sequence(cellar::StateShape{2, {{3, 2}, {3}}}) == state_bytes);
    CHECK(memory.slots() == 2 * 2 + 3 + 2);
    const std::int64_t gathered = 2 * (rows * columns * 4 + small * 2);
    CHECK(memory.bytes() == memory.slots() * state_bytes + gathered);
    CHECK(memory.statistics() == cellar::StateStatistics{9, 0, 0, memory.bytes()});
    const auto violation = [](cellar::StateLimits limits) { return violation_of([&] { Folding<>{shape(), limits}; }); };
    CHECK(violation({.sequences = 0}) == "limits: 0 sequences, expected at least 1");
    CHECK(violation({.batch = -1}) == "limits: a batch of -1, expected 0 or more");
    CHECK(violation({.rollback = -1}) == "limits: a rollback of -1, expected 0 or more");
    CHECK(violation({.checkpoint_interval = -1}) == "limits: a checkpoint_interval of -1, expected 0 or more");
    CHECK(violation({.checkpoint_interval = 8})
          == "limits: a checkpoint_interval of 8 and no checkpoints, expected at least 1");
    CHECK(violation({.checkpoints = -1}) == "limits: -1 checkpoints, expected 0 or more");
    CHECK(violation({.snapshots = -1}) == "limits: -1 snapshots, expected 0 or more");
    CHECK(violation({.checkpoints = INT32_MAX}).find("slots, expected at most") != std::string::npos);
    CHECK(violation({.sequences = 1 << 30, .rollback = 4}).find("slots, expected at most") != std::string::npos);
}

TEST_CASE("overview: a shape that does not fit the tags is a violation") {
    CHECK(violation_of([] {
              Folding<>{cellar::StateShape{1, {{3, 2}}}, {}};
          })
          == "state shape: 1 tensors, expected 2, one for each of States");
    CHECK(violation_of([] {
              Folding<>{cellar::StateShape{1, {{3, 2, 1}, {3}}}, {}};
          })
          == "state shape: tensor 0 of layer 0 has 3 extents, expected 2");
    CHECK(violation_of([] { cellar::StateShape{0, {{3, 2}}}; }) == "state shape: no layers, expected at least 1");
    CHECK(violation_of([] { cellar::StateShape{1, {{3, 0}}}; }) == "state shape: an extent of 0, expected at least 1");
    constexpr const char* too_large = "state shape: a tensor of 2^28 elements or more, expected fewer";
    CHECK(violation_of([] { cellar::StateExtents{1 << 14, 1 << 14}; }) == too_large);
    CHECK(violation_of([] { cellar::StateExtents{std::int64_t{1} << 32, std::int64_t{1} << 32}; }) == too_large);
    CHECK(violation_of([] { cellar::StateExtents{INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}; }) == too_large);
    CHECK(violation_of([] { cellar::StateExtents{1 << 14, (1 << 14) - 1}; }) == "none");
    CHECK(violation_of([] {
              cellar::StateShape{4, {{1 << 13, 1 << 14}}};
          })
          == "state shape: a state has 536870912 elements in all layers, expected fewer than 2^29");
    CHECK(violation_of([] {
              cellar::StateShape{INT32_MAX, {{1}}};
          })
          == "state shape: a state has 2147483647 elements in all layers, expected fewer than 2^29");
    CHECK(violation_of([] { cellar::StateShape{2, {{1 << 14, (1 << 14) - 1}}}; }) == "none");
    CHECK(violation_of([] { cellar::StateExtents{1, 1, 1, 1, 1}; }) == "state shape: 5 extents, expected 1 to 4");
    CHECK(violation_of([] {
              cellar::StateShape{{{{1}}, {{1}, {2}}}};
          })
          == "state shape: a layer has 2 tensors, expected 1 as in the first");
}

TEST_CASE("overview: layers may have different extents") {
    using One = cellar::RecurrentMemory<cellar::States<Small>>;
    One memory{cellar::StateShape{{{{3}}, {{40}}, {{8}}}}, {.sequences = 2, .batch = 2}};
    CHECK(One::bytes_per_sequence(memory.shape()) == 16 + 80 + 16);
    auto pass = memory.begin(batch_of(text(0, 0, 1) + text(1, 0, 1)));
    REQUIRE(pass);
    for (int layer = 0; layer < 3; ++layer) {
        const auto state = pass->get<Small>(layer, pass->micro_batches()[0]);
        CHECK(state.extent(1) == (layer == 0 ? 3 : layer == 1 ? 40 : 8));
        for (std::int64_t i = 0; i < state.extent(1); ++i)
            for (int s = 0; s < 2; ++s) state(s, i) = static_cast<cellar::half>(static_cast<float>(100 * s + i));
        pass->put(layer, pass->micro_batches()[0]);
    }
    pass->commit();
    for (int s = 0; s < 2; ++s)
        CHECK(static_cast<float>(memory.view<Small>(1, memory.state(cellar::Sequence{s}))(39))
              == static_cast<float>(100 * s + 39));
}

TEST_CASE("initial states: sequences without a state start from the given values, and others do not change") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 8, .rollback = 1}};
    const std::int64_t bytes = memory.bytes();
    REQUIRE(feed(memory, text(0, 0, 2)));
    const std::vector<float> wide(rows * columns, 7.0F);
    const std::vector<cellar::half> few(small, cellar::half{3.0F});
    memory.set_initial<Wide>(0, wide);
    memory.set_initial<Small>(1, few);
    CHECK(memory.bytes() == bytes + layers * (rows * columns * 4 + small * 2));
    CHECK(holds(memory, 0, 2, words(2)));
    REQUIRE(feed(memory, text(0, 2, 1, 3)));
    CHECK(holds(memory, 0, 3, words(3)));

    auto pass = memory.begin(batch_of(text(1, 0, 1))).value();
    const cellar::MicroBatch& micro_batch = pass.micro_batches()[0];
    CHECK(pass.get<Wide>(0, micro_batch)(0, 2, 1) == 7);
    CHECK(static_cast<float>(pass.get<Small>(0, micro_batch)(0, 0)) == 0);
    pass.put(0, micro_batch);
    CHECK(pass.get<Wide>(1, micro_batch)(0, 2, 1) == 0); // no initial values: zeros
    CHECK(static_cast<float>(pass.get<Small>(1, micro_batch)(0, 2)) == 3);
    pass.put(1, micro_batch);
    pass.commit();

    // A cleared sequence starts again from the initial values, which are zeros now.
    REQUIRE(memory.remove(cellar::Sequence{1}, Position{0}, to_end));
    memory.set_initial<Wide>(0, std::vector<float>(rows * columns));
    memory.set_initial<Small>(1, std::vector<cellar::half>(small));
    REQUIRE(feed(memory, text(1, 0, 2)));
    CHECK(holds(memory, 1, 2, words(2)));
    CHECK(violation_of([&] { memory.set_initial<Wide>(2, wide); }) == "set_initial: layer 2, expected 0 to 1");
    CHECK(violation_of([&] { memory.set_initial<Wide>(0, std::vector<float>(5)); })
          == "set_initial: 5 values, expected 6");
    auto open = memory.begin(batch_of(text(2, 0, 1)));
    CHECK(violation_of([&] { memory.set_initial<Wide>(0, wide); }).find("a pass is open") != std::string::npos);
}

TEST_CASE("a token that does not follow is refused, with the expected position") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8}};
    REQUIRE(feed(memory, text(1, 0, 3)));
    const auto refusal = [&](const cellar_test::Text& tokens) { return memory.begin(batch_of(tokens)).error(); };
    CHECK(refusal(text(0, 0, 1) + text(1, 4, 1))
          == cellar::Refusal{Reason::not_next, -1, cellar::Sequence{1}, Position{3}});
    CHECK(refusal(text(0, 0, 2) + text(0, 3, 1))
          == cellar::Refusal{Reason::not_next, -1, cellar::Sequence{0}, Position{2}});
    CHECK(memory.next(cellar::Sequence{1}) == Position{3});
}

} // namespace test_operations
