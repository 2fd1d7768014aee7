// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrent/folding.hpp"
#include "violations.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_protocol {

using namespace recurrent_test;
using cellar::HostBackend;
using cellar::MicroBatch;

TEST_CASE("pass: the micro-batches of a layer come in order, each once") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 6, .rollback = 1}};
    const auto tokens = text(0, 0, 3);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    const MicroBatch first = pass->micro_batches()[0];
    const MicroBatch second = pass->micro_batches()[1];
    CHECK(violation_of([&] { pass->get<Wide>(0, second); })
          == "get: micro-batch 1 of layer 0, expected 0 of 2, in ascending order and each once");
    CHECK(violation_of([&] { pass->mark_written(0, second); })
          == "mark_written: micro-batch 1 of layer 0, expected 0 of 2, in ascending order and each once");
    CHECK(violation_of([&] { pass->put(0, first); }) == "put: micro-batch 0 of layer 0, expected a `get` of it first");
    pass->get<Wide>(1, first);
    CHECK(violation_of([&] { pass->put(0, first); })
          == "put: micro-batch 0 of layer 0, expected what `get` was last called for: micro-batch 0 of layer 1");
    fold_micro_batch(*pass, tokens, 0, first, false);
    CHECK(violation_of([&] { pass->put(0, first); })
          == "put: micro-batch 0 of layer 0, expected 1 of 2, in ascending order and each once");
    CHECK(violation_of([&] { pass->get<Wide>(2, first); }) == "get: layer 2, expected 0 to 1");
    CHECK(violation_of([&] { pass->slots<Wide>(-1); }) == "slots: layer -1, expected 0 to 1");
    CHECK(violation_of([&] { first.tokens(1); }) == "micro-batch: sequence 1, expected 0 to 0");
}

TEST_CASE("pass: get fetches once before put") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 6}};
    auto pass = memory.begin(batch_of(text(0, 0, 1)));
    REQUIRE(pass);
    const MicroBatch& micro_batch = pass->micro_batches()[0];
    pass->get<Wide>(0, micro_batch)(0, 0, 0) = 5;
    pass->get<Small>(0, micro_batch)(0, 0) = static_cast<cellar::half>(6.0F);
    CHECK(pass->get<Wide>(0, micro_batch)(0, 0, 0) == 5);
    pass->put(0, micro_batch);
    const auto slots = pass->slots<Wide>(0);
    CHECK(slots.extent(0) == memory.slots());
    CHECK(slots(micro_batch.targets()[0], 0, 0) == 5);
    CHECK(static_cast<float>(pass->slots<Small>(0)(micro_batch.targets()[0], 0)) == 6);
}

TEST_CASE("pass: one at a time, and unusable once it is over") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 6, .checkpoints = 1}};
    auto pass = memory.begin(batch_of(text(0, 0, 1)));
    REQUIRE(pass);
    const cellar::BatchBuilder other = batch_of(text(1, 0, 1));
    const std::string open = ": a pass is open, expected it to be committed or dropped first";
    CHECK(violation_of([&] { (void)memory.begin(other); }) == "begin" + open);
    CHECK(violation_of([&] { memory.reserve(1).drop(); }) == "reserve" + open);
    pass->drop();
    CHECK(violation_of([&] { pass->commit(); })
          == "the pass is over, expected one that was not committed, dropped or moved from");
    CHECK(feed(memory, text(1, 0, 1)));
}

TEST_CASE("pass: while one is open, every other operation is a violation, and it can be committed all the same") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 6, .rollback = 1, .checkpoints = 1, .snapshots = 1}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    cellar::StateSnapshot offloaded = memory.snapshot(cellar::Sequence{0}).value();
    memory.offload(offloaded);
    cellar::StateSnapshot snapshot = memory.snapshot(cellar::Sequence{0}).value();
    const auto tokens = text(0, 3, 2, 4) + text(1, 0, 1);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    const std::string during = portrait(memory);
    const std::string open = ": a pass is open, expected it to be committed or dropped first";
    CHECK(violation_of([&] { (void)memory.remove(cellar::Sequence{0}, Position{0}, cellar::to_end); })
          == "remove" + open);
    CHECK(violation_of([&] { (void)memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{3}); })
          == "copy_prefix" + open);
    CHECK(violation_of([&] { (void)memory.checkpoint(cellar::Sequence{0}); }) == "checkpoint" + open);
    CHECK(violation_of([&] { (void)memory.schedule(cellar::Sequence{0}, Position{5}); }) == "schedule" + open);
    CHECK(violation_of([&] { memory.unschedule(cellar::Sequence{0}, Position{5}); }) == "unschedule" + open);
    CHECK(violation_of([&] { (void)memory.snapshot(cellar::Sequence{0}); }) == "snapshot" + open);
    CHECK(violation_of([&] { (void)memory.restore(cellar::Sequence{1}, snapshot); }) == "restore" + open);
    CHECK(violation_of([&] { (void)memory.restore(cellar::Sequence{1}, offloaded, Position{3}); }) == "restore" + open);
    CHECK(violation_of([&] { (void)memory.rewind(cellar::Sequence{0}, Position{2}); }) == "rewind" + open);
    CHECK(violation_of([&] { memory.offload(snapshot); }) == "offload" + open);
    CHECK(violation_of([&] { (void)memory.reload(offloaded); }) == "reload" + open);
    CHECK_FALSE(snapshot.is_offloaded());
    CHECK(offloaded.is_offloaded());
    CHECK(portrait(memory) == during);
    fold(*pass, tokens);
    pass->commit();
    CHECK(holds(memory, 0, 5, words(5)));
    CHECK(holds(memory, 1, 1, words(1)));
    REQUIRE(memory.restore(cellar::Sequence{1}, snapshot));
    CHECK(holds(memory, 1, 3, words(3)));
}

TEST_CASE("pass: it stays valid when the memory moves") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 6}};
    const auto tokens = text(0, 0, 2);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    fold_micro_batch(*pass, tokens, 0, pass->micro_batches()[0], false);
    Folding<> moved = std::move(memory);
    auto same = std::move(*pass);
    fold_micro_batch(same, tokens, 1, same.micro_batches()[0], false);
    same.commit();
    CHECK(holds(moved, 0, 2, words(2)));
}

TEST_CASE("pass: broken preconditions are named") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 6}};
    CHECK(violation_of([&] { (void)memory.begin(batch_of(text(2, 0, 1))); })
          == "begin: token 0 has sequence 2, expected 0 to 1");
    CHECK(violation_of([&] { (void)memory.begin(batch_of(text(0, -1, 1))); })
          == "begin: token 0 has position -1, expected 0 to 2147483646");
    const std::vector<Position> one{Position{0}};
    CHECK(violation_of([&] {
              (void)memory.begin({one, {}});
          })
          == "begin: 0 sequences, expected one for each of 1 positions");
    const std::vector<Sequence> same{cellar::Sequence{0}};
    const int groups[] = {0, 0};
    CHECK(violation_of([&] {
              (void)memory.begin({one, same, groups});
          })
          == "begin: 2 groups, expected none or one for each of 1 tokens");
    CHECK(violation_of([&] { memory.reserve(7).drop(); }) == "reserve: 7 tokens, expected 0 to 6");
}

TEST_CASE("pass: visit passes on the pass and the layer") {
    Folding<> memory{shape(), {.sequences = 1, .batch = 6}};
    const auto tokens = text(0, 0, 2);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    for (int layer = 0; layer < layers; ++layer)
        pass->visit(layer, [&](auto& own, int of_own) {
            fold_micro_batch(own, tokens, of_own, own.micro_batches()[0], false);
        });
    CHECK(pass->visit(1, [](auto&, int layer) { return 10 * layer; }) == 10);
    CHECK(violation_of([&] { pass->visit(2, [](auto&, int) {}); }) == "visit: layer 2, expected 0 to 1");
    pass->commit();
    CHECK(holds(memory, 0, 2, words(2)));
}

namespace {

/// A backend that throws after `copies_left` more copies.
struct Failing : HostBackend {
    int copies_left = -1;

    void copy_slots(std::span<const cellar::SlotRows> tensors, std::span<const cellar::SlotCopy> copies) {
        if (copies_left-- == 0) throw std::bad_alloc{};
        HostBackend::copy_slots(tensors, copies);
    }
};

} // namespace

TEST_CASE("pass: a backend that throws leaves everything as it was") {
    Folding<Failing> memory{shape(), {.sequences = 2, .batch = 6, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    const auto before = memory.statistics();
    const auto tokens = text(0, 3, 2, 4) + text(1, 0, 2);
    auto& backend = const_cast<Failing&>(memory.backend());
    for (int copies = 0; copies < 9; ++copies) {
        CAPTURE(copies);
        backend.copies_left = copies; // one in begin, two for each of four micro-batches
        CHECK_THROWS_AS(feed(memory, tokens), std::bad_alloc);
        CHECK(memory.statistics() == before);
        CHECK(kept(memory, 0) == std::vector<int>{2, 3});
        CHECK(holds(memory, 0, 2, words(2)));
        CHECK(holds(memory, 0, 3, words(3)));
    }
    REQUIRE(feed(memory, tokens));
    CHECK(holds(memory, 0, 5, words(5)));
    CHECK(holds(memory, 1, 2, words(2)));
}

TEST_CASE("pass: states that could not be copied are copied by the next get") {
    Folding<Failing> memory{shape(), {.sequences = 2, .batch = 6}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    REQUIRE(feed(memory, text(1, 0, 2, 50))); // whose states were copied last
    const auto tokens = text(0, 3, 1, 4);
    auto pass = memory.begin(batch_of(tokens));
    REQUIRE(pass);
    const MicroBatch& micro_batch = pass->micro_batches()[0];
    const_cast<Failing&>(memory.backend()).copies_left = 0;
    CHECK_THROWS_AS(pass->get<Wide>(0, micro_batch), std::bad_alloc);
    for (int layer = 0; layer < memory.layers(); ++layer) fold_micro_batch(*pass, tokens, layer, micro_batch, false);
    pass->commit();
    CHECK(holds(memory, 0, 4, words(4)));
}

TEST_CASE("pass: a micro-batch of another pass is a violation") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 6}};
    auto pass = memory.begin(batch_of(text(0, 0, 2) + text(1, 0, 2)));
    REQUIRE(pass);
    const MicroBatch old = pass->micro_batches()[0];
    pass->drop();
    auto next = memory.begin(batch_of(text(0, 0, 2)));
    REQUIRE(next);
    const std::string other = ": micro-batch 0 of layer 0 is not of this pass, expected one of its micro_batches()";
    CHECK(violation_of([&] { next->get<Wide>(0, old); }) == "get" + other);
    CHECK(violation_of([&] { next->mark_written(0, old); }) == "mark_written" + other);
}

} // namespace test_protocol
