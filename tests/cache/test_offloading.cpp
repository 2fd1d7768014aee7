// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots that are offloaded from the cells, and reloaded.
#include "../violations.hpp"
#include "snapshots.hpp"
#include <cellar/cache/audit.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_offloading {

using namespace cellar;
using numbers::feed;
using numbers::filled;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

std::int64_t bytes_per_token(const numbers::Cache<>& cache) {
    return cache.bytes() / cache.cells();
}

} // namespace

TEST_CASE("a snapshot that is offloaded gives up its cells, and has their data to the byte") {
    auto cache = filled();
    CellSnapshot snapshot = cache.snapshot(Sequence{0}, Position{1}, Position{5}).value();
    CHECK_FALSE(snapshot.is_offloaded());
    CHECK(snapshot.bytes() == 0);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.statistics().free == 20);
    cache.offload(snapshot);
    CHECK(snapshot.is_offloaded());
    CHECK(snapshot.bytes() == 4 * bytes_per_token(cache));
    CHECK(snapshot.from() == Position{1});
    CHECK(snapshot.to() == Position{5});
    CHECK(snapshot.tokens() == 4);
    const CacheStatistics statistics = cache.statistics();
    CHECK(statistics.free == 24);
    CHECK(statistics.snapshots == 0);
    CHECK(statistics.snapshot_tokens == 0);
    CHECK(statistics.offloaded == 1);
    CHECK(statistics.offloaded_bytes == snapshot.bytes());
    CHECK(audit(cache) == "");
    { const CellSnapshot gone = std::move(snapshot); }
    CHECK(cache.statistics().offloaded == 0);
    CHECK(cache.statistics().offloaded_bytes == 0);
}

TEST_CASE("several sequences are restored from one snapshot that is offloaded, each to cells of its own") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend}) {
        auto cache = filled();
        CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
        cache.offload(snapshot, to);
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        feed(cache, prompt(2, 0, {7, 8, 9})); // where the tokens were
        REQUIRE(cache.restore(Sequence{0}, snapshot));
        REQUIRE(cache.restore(Sequence{1}, snapshot, Position{4}));
        CHECK(cache.next(Sequence{1}) == Position{4});
        CHECK(cache.statistics().shared == 0);
        CHECK(cache.statistics().free == 24 - 3 - 6 - 4);
        for (int layer = 0; layer < cache.layers(); ++layer)
            CHECK(numbers::values_of(numbers::held(cache, 0, layer)) == Values{1, 2, 3, 4, 5, 6});
        CHECK(values(cache, 1) == Values{1, 2, 3, 4});
        CHECK(values(cache, 2) == Values{7, 8, 9});
        feed(cache, prompt(1, 4, {10}));
        CHECK(values(cache, 1) == Values{1, 2, 3, 4, 10});
        CHECK(audit(cache) == "");
    }
}

TEST_CASE("a snapshot that is reloaded owns cells again, which sequences share") {
    auto cache = filled();
    feed(cache, prompt(1, 0, {7, 8}));
    CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    cache.offload(snapshot); // nothing happens
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    feed(cache, prompt(2, 0, {9}));
    REQUIRE(cache.reload(snapshot));
    REQUIRE(cache.reload(snapshot)); // nothing happens
    CHECK_FALSE(snapshot.is_offloaded());
    CHECK(snapshot.bytes() == 0);
    CHECK(cache.statistics().snapshots == 1);
    CHECK(cache.statistics().snapshot_tokens == 6);
    CHECK(cache.statistics().offloaded == 0);
    REQUIRE(cache.restore(Sequence{0}, snapshot));
    CHECK(cache.statistics().shared == 6);
    CHECK(values(cache, 0) == Values{1, 2, 3, 4, 5, 6});
    cache.defragment();
    CHECK(values(cache, 0) == Values{1, 2, 3, 4, 5, 6});
    CHECK(audit(cache) == "");
}

TEST_CASE("without room for the rows, a snapshot is neither restored nor reloaded, and nothing changes") {
    auto cache = filled();
    CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    feed(cache, prompt(1, 0, {7, 8, 9, 10, 11, 12, 13, 14}));
    feed(cache, prompt(2, 0, {15, 16, 17, 18, 19}));
    REQUIRE(cache.statistics().free == 5);
    const std::string before = numbers::portrait(cache);
    const auto no_room = cache.reload(snapshot);
    REQUIRE_FALSE(no_room);
    CHECK(no_room.error() == Refusal{.reason = Reason::full});
    CHECK(no_room.error().needed == 6);
    CHECK(no_room.error().available == 5);
    CHECK(cache.restore(Sequence{2}, snapshot, Position{6}).has_value()); // the cells that sequence 2 gives up count
    CHECK(values(cache, 2) == Values{1, 2, 3, 4, 5, 6});
    REQUIRE(cache.copy_prefix(Sequence{1}, Sequence{2}, Position{8}));
    feed(cache, prompt(0, 6, {20, 21}));
    REQUIRE(cache.statistics().free == 8);
    feed(cache, prompt(0, 8, {22, 23, 24}));
    REQUIRE(cache.statistics().free == 5);
    const std::string full = numbers::portrait(cache);
    const auto refused = cache.restore(Sequence{2}, snapshot); // its cells are shared, so they do not become free
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Refusal{.reason = Reason::full, .sequence = Sequence{2}});
    CHECK(numbers::portrait(cache) == full);
    CHECK(snapshot.is_offloaded());
    CHECK(before != full);
    CHECK(audit(cache) == "");
}

TEST_CASE("the parts of a sequence are restored one after another, in place or offloaded") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    CellSnapshot tail = cache.snapshot(Sequence{0}, Position{4}, Position{6}).value();
    cache.offload(tail);
    REQUIRE(cache.restore(Sequence{1}, head));
    REQUIRE(cache.restore(Sequence{1}, tail));
    CHECK(values(cache, 1) == Values{1, 2, 3, 4, 5, 6});
    REQUIRE(cache.remove(Sequence{1}, Position{2}, to_end));
    CHECK(cache.restore(Sequence{1}, tail).error()
          == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{1}});
}

TEST_CASE("a window is offloaded with its sinks, and restored where it is complete") {
    Cache<StandardV<float>, SlidingWindow<3>> cache{{.layers = 2, .kv_heads = 1, .head_dim = 1},
                                                    {.sequences = 2, .capacity = 100, .batch = 4},
                                                    SlidingWindow<3>{{.retention = 5, .sinks = 2}}};
    for (int p = 0; p < 20; p += 4) {
        const auto x = static_cast<float>(p);
        feed(cache, prompt(0, p, {x + 1, x + 2, x + 3, x + 4}));
    }
    CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.restore(Sequence{1}, snapshot, Position{15}).error()
          == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{1}});
    REQUIRE(cache.restore(Sequence{1}, snapshot, Position{19}));
    CHECK(values(cache, 1) == Values{1, 2, 16, 17, 18, 19});
    REQUIRE(cache.restore(Sequence{0}, snapshot));
    CHECK(values(cache, 0) == Values{1, 2, 16, 17, 18, 19, 20});
}

TEST_CASE("the inputs of an encoder are offloaded and in") {
    EncoderMemory<> memory{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 10, .batch = 6}};
    const std::vector<float> rows{1, 2, 3, 4};
    auto pass = memory.write(Sequence{0}, Position{5}, 4).value();
    for (int layer = 0; layer < 2; ++layer) pass.put(layer, rows, rows);
    pass.commit();
    CellSnapshot snapshot = memory.snapshot(Sequence{0}).value();
    memory.offload(snapshot);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    CHECK(memory.statistics().free == memory.cells());
    REQUIRE(memory.reload(snapshot));
    REQUIRE(memory.restore(Sequence{1}, snapshot));
    CHECK(memory.tokens(Sequence{1}) == 4);
    CHECK(memory.range(Sequence{1}) == PositionRange{Position{5}, Position{5}});
    const auto all = memory.reserve(1);
    memory.visit_cells(Sequence{1}, [&](Position, Cell cell, std::int32_t) { CHECK(all.keys(1)(cell, 0, 0) > 0); });
}

TEST_CASE("a snapshot that is offloaded outlives its memory, and reloading it is then a violation") {
    std::optional<numbers::Cache<>> cache{filled()};
    CellSnapshot snapshot = cache->snapshot(Sequence{0}).value();
    cache->offload(snapshot);
    auto other = filled();
    CHECK(violation_of([&] { (void)other.reload(snapshot); })
          == "reload: the snapshot [0, 6) is of another memory, which has 24 cells, expected one of this memory, which "
             "has 24");
    CHECK(violation_of([&] { other.offload(snapshot); }).find("offload: the snapshot") == 0);
    cache.reset();
    const std::string destroyed =
        "the snapshot's memory was destroyed, expected it to live as long as its snapshots are used";
    CHECK(violation_of([&] { (void)other.reload(snapshot); }) == destroyed);
    CHECK(violation_of([&] { (void)snapshot.bytes(); }) == destroyed);
}

TEST_CASE("nothing is offloaded while a pass is open") {
    auto cache = filled();
    CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    auto pass = cache.reserve(1);
    const std::string open = ": a pass is open, expected it to be committed or dropped first";
    CHECK(violation_of([&] { cache.offload(snapshot); }) == "offload" + open);
    CHECK(violation_of([&] { (void)cache.reload(snapshot); }) == "reload" + open);
    pass.drop();
    CHECK_FALSE(snapshot.is_offloaded());
}

} // namespace test_offloading
