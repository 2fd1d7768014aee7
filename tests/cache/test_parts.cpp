// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots that are offloaded are divided and joined, to others that are offloaded or in place.
#include "../violations.hpp"
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace test_parts {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

/// A cache whose sequence 0 has tokens 1 to 6. Its layers are of different sizes.
numbers::Cache<> filled() {
    numbers::Cache<> cache{CacheShape{.each_layer = {{1, 2, 1}, {2, 3, 5}, {1, 2, 2}}},
                           {.sequences = 3, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    return cache;
}

std::int64_t bytes_per_token(const numbers::Cache<>& cache) {
    return cache.bytes() / cache.cells();
}

/// All that can be observed of a cache and of these snapshots.
template <class Cache, class... Snapshots>
std::string portrait(Cache& cache, const Snapshots&... snapshots) {
    std::string all = numbers::portrait(cache) + audit(cache);
    const auto add = [&](const CellSnapshot& s) {
        all += " [" + std::to_string(s.from().value) + ", " + std::to_string(s.to().value) + ") "
               + std::to_string(s.tokens()) + ' ' + std::to_string(s.bytes());
    };
    (add(snapshots), ...);
    const CacheStatistics statistics = cache.statistics();
    return all + ' ' + std::to_string(statistics.snapshots) + ' ' + std::to_string(statistics.offloaded) + ' '
           + std::to_string(statistics.offloaded_bytes);
}

/// What sequence 1 has after it is restored from these snapshots, one after another: the numbers of its tokens, by
/// position.
template <class... Snapshots>
Values restored(numbers::Cache<>& cache, const Snapshots&... snapshots) {
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    const auto restore = [&](const CellSnapshot& snapshot) { REQUIRE(cache.restore(Sequence{1}, snapshot)); };
    (restore(snapshots), ...);
    CHECK(audit(cache) == "");
    Values found;
    const auto pass = cache.reserve(1);
    cache.visit_cells(Sequence{1}, [&](Position, Cell first, std::int32_t n) {
        for (Cell cell = first; cell < first + n; ++cell) {
            found.push_back(pass.keys(0)(cell, 0, 0));
            for (int layer = 0; layer < cache.layers(); ++layer) {
                CHECK(pass.keys(layer)(cell, 0, 0) == found.back());
                CHECK(pass.values(layer)(cell, 0, 0) == found.back());
            }
        }
    });
    return found;
}

} // namespace

TEST_CASE("a snapshot that is offloaded is divided where it is, and each part has memory for its own rows") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::backend}) {
        auto cache = filled();
        CellSnapshot head = cache.snapshot(Sequence{0}, Position{1}).value();
        cache.offload(head, to);
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        feed(cache, prompt(0, 0, {7, 9, 9, 9, 9, 9}));
        CellSnapshot tail = cache.split(head, Position{3}).value();
        CHECK(head.is_offloaded());
        CHECK(tail.is_offloaded());
        CHECK(head.from() == Position{1});
        CHECK(head.to() == Position{3});
        CHECK(tail.from() == Position{3});
        CHECK(tail.to() == Position{6});
        CHECK(head.bytes() == 2 * bytes_per_token(cache));
        CHECK(tail.bytes() == 3 * bytes_per_token(cache));
        CHECK(cache.statistics().offloaded == 2);
        CHECK(cache.statistics().offloaded_bytes == 5 * bytes_per_token(cache));
        CellSnapshot first = cache.snapshot(Sequence{0}, Position{0}, Position{1}).value();
        CHECK(restored(cache, first, head, tail) == Values{7, 2, 3, 4, 5, 6});
        CellSnapshot last = cache.split(tail, Position{5}).value(); // the rows of a part are numbered from 0 on
        CHECK(restored(cache, first, head, tail, last) == Values{7, 2, 3, 4, 5, 6});
        REQUIRE(cache.reload(last));
        CHECK(restored(cache, first, head, tail, last) == Values{7, 2, 3, 4, 5, 6});
    }
}

TEST_CASE("a snapshot that is offloaded is divided at its ends into all and nothing") {
    auto cache = filled();
    CellSnapshot all = cache.snapshot(Sequence{0}).value();
    cache.offload(all);
    CellSnapshot nothing = cache.split(all, Position{6}).value();
    CHECK(nothing.bytes() == 0);
    CHECK(nothing.is_offloaded());
    CHECK(all.tokens() == 6);
    CellSnapshot moved = cache.split(all, Position{0}).value();
    CHECK(all.bytes() == 0);
    CHECK(all.to() == Position{0});
    CHECK(restored(cache, all, moved, nothing) == Values{1, 2, 3, 4, 5, 6});
    REQUIRE(cache.merge(moved, std::move(nothing)));
    CHECK(restored(cache, moved) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("two snapshots that are offloaded are joined in the place of the first one") {
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::backend}) {
        auto cache = filled();
        CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{4}).value();
        CellSnapshot tail = cache.snapshot(Sequence{0}, Position{4}).value();
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        cache.offload(head, to);
        cache.offload(tail);
        REQUIRE(cache.merge(head, std::move(tail)));
        CHECK(head.to() == Position{6});
        CHECK(head.bytes() == 6 * bytes_per_token(cache));
        CHECK(cache.statistics().offloaded == 1);
        CHECK(cache.statistics().offloaded_bytes == head.bytes());
        CHECK(violation_of([&] { (void)tail.to(); }) == "the snapshot was moved from, expected one that was not");
        CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
        CellSnapshot rest = cache.split(head, Position{2}).value();
        CHECK(restored(cache, head, rest) == Values{1, 2, 3, 4, 5, 6});
    }
}

TEST_CASE("a snapshot in place is joined to one that is offloaded, and gives up its cells") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    CellSnapshot tail = cache.snapshot(Sequence{0}, Position{4}).value();
    cache.offload(head);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    CHECK(cache.statistics().free == 22);
    REQUIRE(cache.merge(head, std::move(tail)));
    CHECK(cache.statistics().free == 24);
    CHECK(cache.statistics().snapshots == 0);
    CHECK(cache.statistics().offloaded == 1);
    CHECK(head.bytes() == 6 * bytes_per_token(cache));
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a snapshot that is offloaded is joined to one in place, if there are cells for it") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    CellSnapshot tail = cache.snapshot(Sequence{0}, Position{4}).value();
    cache.offload(tail);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    feed(cache, prompt(0, 0, {9, 9, 9, 9, 9, 9, 9, 9}));
    feed(cache, prompt(1, 0, {8, 8, 8, 8, 8, 8, 8, 8}));
    feed(cache, prompt(2, 0, {7, 7, 7}));
    REQUIRE(cache.statistics().free == 1);
    const std::string before = portrait(cache, head, tail);
    CHECK(cache.merge(head, std::move(tail)).error() == Refusal{.reason = Reason::full});
    CHECK(portrait(cache, head, tail) == before);
    REQUIRE(cache.remove(Sequence{1}, Position{3}, Position{5}));
    REQUIRE(cache.merge(head, std::move(tail)));
    CHECK_FALSE(head.is_offloaded());
    CHECK(head.bytes() == 0);
    CHECK(head.tokens() == 6);
    CHECK(cache.statistics().offloaded == 0);
    CHECK(cache.statistics().snapshot_tokens == 6);
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    cache.defragment();
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a child that was moved out of its result survives a merge that is refused") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    auto tail = cache.snapshot(Sequence{0}, Position{4});
    cache.offload(*tail);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    for (const int s : {0, 1}) feed(cache, prompt(s, 0, {9, 9, 9, 9, 9, 9, 9, 9}));
    feed(cache, prompt(2, 0, {7, 7, 7}));
    const std::string before = portrait(cache, head, *tail);
    CHECK(cache.merge(head, *std::move(tail)).error() == Refusal{.reason = Reason::full});
    CHECK(portrait(cache, head, *tail) == before);
    REQUIRE(cache.remove(Sequence{1}, Position{3}, Position{5}));
    REQUIRE(cache.merge(head, *std::move(tail)));
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a window that takes the place of an earlier one stays where it is") {
    using Window = SlidingWindow<4>;
    numbers::Cache<Window> cache{
        numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}, Window{{.retention = 5, .sinks = 1}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    const std::string before = portrait(cache, snapshot);
    CHECK(cache.split(snapshot, Position{9}).error() == Refusal{.reason = Reason::cannot_split});
    CHECK(portrait(cache, snapshot) == before);
    feed(cache, prompt(0, 10, {11, 12}));
    CellSnapshot later = cache.snapshot(Sequence{0}).value();
    REQUIRE(cache.merge(snapshot, std::move(later)));
    CHECK_FALSE(snapshot.is_offloaded());
    CHECK(snapshot.to() == Position{12});
    CHECK(cache.statistics().offloaded == 0);
    feed(cache, prompt(0, 12, {13}));
    CellSnapshot last = cache.snapshot(Sequence{0}).value();
    cache.offload(last);
    REQUIRE(cache.merge(snapshot, std::move(last)));
    CHECK(snapshot.is_offloaded());
    CHECK(cache.statistics().snapshots == 0);
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    CHECK(values(cache, 1) == Values{1, 9, 10, 11, 12, 13});
}

TEST_CASE("the inputs of an encoder are divided and joined while they are offloaded") {
    EncoderMemory<StandardV<float>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                           {.sequences = 2, .capacity = 8, .batch = 8}};
    for (const int p : {0, 3}) {
        auto pass = memory.write(Sequence{0}, Position{p}, 2).value();
        const auto x = static_cast<float>(p);
        pass.put(0, Values{x + 1, x + 2}, Values{x + 1, x + 2});
        pass.commit();
    }
    CellSnapshot all = memory.snapshot(Sequence{0}, Position{0}, Position{4}).value();
    memory.offload(all);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    CellSnapshot later = memory.split(all, Position{3}).value();
    CHECK(all.tokens() == 2);
    CHECK(later.tokens() == 2);
    CHECK(later.bytes() == all.bytes());
    REQUIRE(memory.reload(all));
    REQUIRE(memory.merge(all, std::move(later)));
    REQUIRE(memory.restore(Sequence{1}, all));
    Values found;
    const auto pass = memory.reserve(1);
    memory.visit_cells(Sequence{1}, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) found.push_back(pass.keys(0)(cell + i, 0, 0));
    });
    CHECK(found == Values{1, 2, 4, 5});
    CHECK(audit(memory) == "");
}

TEST_CASE("mistakes with parts that are offloaded are violations, and change nothing") {
    auto cache = filled();
    auto other = filled();
    CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{2}).value();
    CellSnapshot apart = cache.snapshot(Sequence{0}, Position{3}, Position{5}).value();
    CellSnapshot foreign = other.snapshot(Sequence{0}, Position{2}).value();
    cache.offload(head);
    cache.offload(apart);
    const std::string before = portrait(cache, head, apart);
    CHECK(violation_of([&] { (void)cache.split(apart, Position{2}); }) == "split: position 2, expected 3 to 5");
    CHECK(violation_of([&] { (void)cache.split(apart, Position{6}); }) == "split: position 6, expected 3 to 5");
    CHECK(violation_of([&] { (void)cache.merge(head, std::move(apart)); })
          == "merge: the child is of positions [3, 5), expected it to begin at 2, where the parent ends");
    CHECK(violation_of([&] { (void)cache.merge(head, std::move(head)); })
          == "merge: the snapshots are one and the same, expected two");
    CHECK(violation_of([&] { (void)cache.merge(head, std::move(foreign)); }).find("merge: the snapshot [2, 6) is of")
          == 0);
    CHECK(foreign.tokens() == 4);
    CHECK(portrait(cache, head, apart) == before);
    auto pass = cache.reserve(1);
    const std::string open = ": a pass is open, expected it to be committed or dropped first";
    CHECK(violation_of([&] { (void)cache.split(apart, Position{4}); }) == "split" + open);
    CHECK(violation_of([&] { (void)cache.merge(head, std::move(apart)); }) == "merge" + open);
}

} // namespace test_parts
