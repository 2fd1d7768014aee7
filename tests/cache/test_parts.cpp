// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots that are paged out are divided and joined, to others that are paged out or in place.
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
    numbers::Cache<> cache{CacheShape{{{1, 2, 1}, {2, 3, 5}, {1, 2, 2}}}, {.sequences = 3, .capacity = 8, .batch = 8}};
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
    return all + ' ' + std::to_string(statistics.snapshots) + ' ' + std::to_string(statistics.paged_out) + ' '
           + std::to_string(statistics.paged_bytes);
}

/// What sequence 1 has after it is restored from these snapshots, one after another: the numbers of its tokens, by
/// position.
template <class... Snapshots>
Values restored(numbers::Cache<>& cache, const Snapshots&... snapshots) {
    REQUIRE(cache.remove({1}, {0}, to_end));
    const auto restore = [&](const CellSnapshot& snapshot) { REQUIRE(cache.restore({1}, snapshot)); };
    (restore(snapshots), ...);
    CHECK(audit(cache) == "");
    Values found;
    const auto pass = cache.reserve(1);
    cache.visit_cells({1}, [&](Position, Cell first, std::int32_t n) {
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

TEST_CASE("a snapshot that is paged out is divided where it is, and each part has memory for its own rows") {
    for (const PageTo to : {PageTo::host, PageTo::backend}) {
        auto cache = filled();
        CellSnapshot head = cache.snapshot({0}, {1}).value();
        cache.page_out(head, to);
        REQUIRE(cache.remove({0}, {0}, to_end));
        feed(cache, prompt(0, 0, {7, 9, 9, 9, 9, 9}));
        CellSnapshot tail = cache.split(head, {3}).value();
        CHECK(head.is_paged_out());
        CHECK(tail.is_paged_out());
        CHECK(head.from() == Position{1});
        CHECK(head.to() == Position{3});
        CHECK(tail.from() == Position{3});
        CHECK(tail.to() == Position{6});
        CHECK(head.bytes() == 2 * bytes_per_token(cache));
        CHECK(tail.bytes() == 3 * bytes_per_token(cache));
        CHECK(cache.statistics().paged_out == 2);
        CHECK(cache.statistics().paged_bytes == 5 * bytes_per_token(cache));
        CellSnapshot first = cache.snapshot({0}, {0}, {1}).value();
        CHECK(restored(cache, first, head, tail) == Values{7, 2, 3, 4, 5, 6});
        CellSnapshot last = cache.split(tail, {5}).value(); // the rows of a part are numbered from 0 on
        CHECK(restored(cache, first, head, tail, last) == Values{7, 2, 3, 4, 5, 6});
        REQUIRE(cache.page_in(last));
        CHECK(restored(cache, first, head, tail, last) == Values{7, 2, 3, 4, 5, 6});
    }
}

TEST_CASE("a snapshot that is paged out is divided at its ends into all and nothing") {
    auto cache = filled();
    CellSnapshot all = cache.snapshot({0}).value();
    cache.page_out(all);
    CellSnapshot nothing = cache.split(all, {6}).value();
    CHECK(nothing.bytes() == 0);
    CHECK(nothing.is_paged_out());
    CHECK(all.tokens() == 6);
    CellSnapshot moved = cache.split(all, {0}).value();
    CHECK(all.bytes() == 0);
    CHECK(all.to() == Position{0});
    CHECK(restored(cache, all, moved, nothing) == Values{1, 2, 3, 4, 5, 6});
    REQUIRE(cache.merge(moved, std::move(nothing)));
    CHECK(restored(cache, moved) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("two snapshots that are paged out are joined in the place of the first one") {
    for (const PageTo to : {PageTo::host, PageTo::backend}) {
        auto cache = filled();
        CellSnapshot head = cache.snapshot({0}, {0}, {4}).value();
        CellSnapshot tail = cache.snapshot({0}, {4}).value();
        REQUIRE(cache.remove({0}, {0}, to_end));
        cache.page_out(head, to);
        cache.page_out(tail);
        REQUIRE(cache.merge(head, std::move(tail)));
        CHECK(head.to() == Position{6});
        CHECK(head.bytes() == 6 * bytes_per_token(cache));
        CHECK(cache.statistics().paged_out == 1);
        CHECK(cache.statistics().paged_bytes == head.bytes());
        CHECK(violation_of([&] { (void)tail.to(); }) == "the snapshot was moved from, expected one that was not");
        CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
        CellSnapshot rest = cache.split(head, {2}).value();
        CHECK(restored(cache, head, rest) == Values{1, 2, 3, 4, 5, 6});
    }
}

TEST_CASE("a snapshot in place is joined to one that is paged out, and gives up its cells") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot({0}, {0}, {4}).value();
    CellSnapshot tail = cache.snapshot({0}, {4}).value();
    cache.page_out(head);
    REQUIRE(cache.remove({0}, {0}, to_end));
    CHECK(cache.statistics().free == 22);
    REQUIRE(cache.merge(head, std::move(tail)));
    CHECK(cache.statistics().free == 24);
    CHECK(cache.statistics().snapshots == 0);
    CHECK(cache.statistics().paged_out == 1);
    CHECK(head.bytes() == 6 * bytes_per_token(cache));
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a snapshot that is paged out is joined to one in place, if there are cells for it") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot({0}, {0}, {4}).value();
    CellSnapshot tail = cache.snapshot({0}, {4}).value();
    cache.page_out(tail);
    REQUIRE(cache.remove({0}, {0}, to_end));
    feed(cache, prompt(0, 0, {9, 9, 9, 9, 9, 9, 9, 9}));
    feed(cache, prompt(1, 0, {8, 8, 8, 8, 8, 8, 8, 8}));
    feed(cache, prompt(2, 0, {7, 7, 7}));
    REQUIRE(cache.statistics().free == 1);
    const std::string before = portrait(cache, head, tail);
    CHECK(cache.merge(head, std::move(tail)).error() == Refusal{.reason = Reason::full});
    CHECK(portrait(cache, head, tail) == before);
    REQUIRE(cache.remove({1}, {3}, {5}));
    REQUIRE(cache.merge(head, std::move(tail)));
    CHECK_FALSE(head.is_paged_out());
    CHECK(head.bytes() == 0);
    CHECK(head.tokens() == 6);
    CHECK(cache.statistics().paged_out == 0);
    CHECK(cache.statistics().snapshot_tokens == 6);
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
    REQUIRE(cache.remove({0}, {0}, to_end));
    cache.defragment();
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a child that was moved out of its result survives a merge that is refused") {
    auto cache = filled();
    CellSnapshot head = cache.snapshot({0}, {0}, {4}).value();
    auto tail = cache.snapshot({0}, {4});
    cache.page_out(*tail);
    REQUIRE(cache.remove({0}, {0}, to_end));
    for (const int s : {0, 1}) feed(cache, prompt(s, 0, {9, 9, 9, 9, 9, 9, 9, 9}));
    feed(cache, prompt(2, 0, {7, 7, 7}));
    const std::string before = portrait(cache, head, *tail);
    CHECK(cache.merge(head, *std::move(tail)).error() == Refusal{.reason = Reason::full});
    CHECK(portrait(cache, head, *tail) == before);
    REQUIRE(cache.remove({1}, {3}, {5}));
    REQUIRE(cache.merge(head, *std::move(tail)));
    CHECK(restored(cache, head) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a window that takes the place of an earlier one stays where it is") {
    using Window = SlidingWindow<4>;
    numbers::Cache<Window> cache{
        numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}, Window{{.retention = 5, .sinks = 1}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    CellSnapshot snapshot = cache.snapshot({0}).value();
    cache.page_out(snapshot);
    const std::string before = portrait(cache, snapshot);
    CHECK(cache.split(snapshot, {9}).error() == Refusal{.reason = Reason::cannot_split});
    CHECK(portrait(cache, snapshot) == before);
    feed(cache, prompt(0, 10, {11, 12}));
    CellSnapshot later = cache.snapshot({0}).value();
    REQUIRE(cache.merge(snapshot, std::move(later)));
    CHECK_FALSE(snapshot.is_paged_out());
    CHECK(snapshot.to() == Position{12});
    CHECK(cache.statistics().paged_out == 0);
    feed(cache, prompt(0, 12, {13}));
    CellSnapshot last = cache.snapshot({0}).value();
    cache.page_out(last);
    REQUIRE(cache.merge(snapshot, std::move(last)));
    CHECK(snapshot.is_paged_out());
    CHECK(cache.statistics().snapshots == 0);
    REQUIRE(cache.restore({1}, snapshot));
    CHECK(values(cache, 1) == Values{1, 9, 10, 11, 12, 13});
}

TEST_CASE("the inputs of an encoder are divided and joined while they are paged out") {
    EncoderMemory<StandardV<float>> memory{{1, 1, 1}, {.sequences = 2, .capacity = 8, .batch = 8}};
    for (const int p : {0, 3}) {
        auto pass = memory.write({0}, {p}, 2).value();
        const auto x = static_cast<float>(p);
        pass.put(0, Values{x + 1, x + 2}, Values{x + 1, x + 2});
        pass.commit();
    }
    CellSnapshot all = memory.snapshot({0}, {0}, {4}).value();
    memory.page_out(all);
    REQUIRE(memory.remove({0}, {0}, to_end));
    CellSnapshot later = memory.split(all, {3}).value();
    CHECK(all.tokens() == 2);
    CHECK(later.tokens() == 2);
    CHECK(later.bytes() == all.bytes());
    REQUIRE(memory.page_in(all));
    REQUIRE(memory.merge(all, std::move(later)));
    REQUIRE(memory.restore({1}, all));
    Values found;
    const auto pass = memory.reserve(1);
    memory.visit_cells({1}, [&](Position, Cell cell, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) found.push_back(pass.keys(0)(cell + i, 0, 0));
    });
    CHECK(found == Values{1, 2, 4, 5});
    CHECK(audit(memory) == "");
}

TEST_CASE("mistakes with parts that are paged out are violations, and change nothing") {
    auto cache = filled();
    auto other = filled();
    CellSnapshot head = cache.snapshot({0}, {0}, {2}).value();
    CellSnapshot apart = cache.snapshot({0}, {3}, {5}).value();
    CellSnapshot foreign = other.snapshot({0}, {2}).value();
    cache.page_out(head);
    cache.page_out(apart);
    const std::string before = portrait(cache, head, apart);
    CHECK(violation_of([&] { (void)cache.split(apart, {2}); }) == "split: position 2, expected 3 to 5");
    CHECK(violation_of([&] { (void)cache.split(apart, {6}); }) == "split: position 6, expected 3 to 5");
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
    CHECK(violation_of([&] { (void)cache.split(apart, {4}); }) == "split" + open);
    CHECK(violation_of([&] { (void)cache.merge(head, std::move(apart)); }) == "merge" + open);
}

} // namespace test_parts
