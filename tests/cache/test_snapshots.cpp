// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "snapshots.hpp"
#include <cellar/cache/audit.hpp>

#include <numeric>
#include <optional>

namespace test_snapshots {

using namespace cellar;
using numbers::feed;
using numbers::filled;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

/// The refusal of `operation`, which must change nothing.
template <class Cache, class Operation>
Reason refused(Cache& cache, Operation operation) {
    const std::string before = numbers::portrait(cache);
    const auto answer = operation();
    REQUIRE_FALSE(answer);
    CHECK(numbers::portrait(cache) == before);
    CHECK(audit(cache) == "");
    return answer.error().reason;
}

} // namespace

TEST_CASE("a snapshot shares cells, and nothing that happens to its sequence changes it") {
    auto cache = filled();
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.to() == Position{6});
    CHECK(snapshot.tokens() == 6);
    CHECK(cache.statistics().free == 18);
    CHECK(cache.statistics().shared == 6);
    CHECK(cache.statistics().snapshots == 1);
    CHECK(cache.statistics().snapshot_tokens == 6);
    REQUIRE(cache.remove(Sequence{0}, Position{2}, to_end));
    feed(cache, prompt(0, 2, {7, 8}));
    CHECK(cache.statistics().free == 16);
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    CHECK(values(cache, 1) == Values{1, 2, 3, 4, 5, 6});
    CHECK(values(cache, 0) == Values{1, 2, 7, 8});
    feed(cache, prompt(1, 6, {9}));
    REQUIRE(cache.restore(Sequence{0}, snapshot, Position{3}));
    CHECK(values(cache, 0) == Values{1, 2, 3});
    CHECK(cache.next(Sequence{0}) == Position{3});
    CHECK(audit(cache) == "");
}

TEST_CASE("a snapshot lists the cells of its tokens, or the rows of its data where it is offloaded") {
    using List = std::vector<std::pair<int, int>>; // positions and cells
    const auto listed = [](const CellSnapshot& snapshot) {
        List list;
        snapshot.visit_cells([&](Position p, Cell cell, std::int32_t count) {
            for (int i = 0; i < count; ++i) list.emplace_back(p.value + i, cell + i);
        });
        return list;
    };
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 2, .capacity = 8, .batch = 8, .placement = Placement::scattered}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    feed(cache, prompt(1, 0, {9}));
    feed(cache, prompt(0, 3, {4, 5, 6}));
    CellSnapshot snapshot = cache.snapshot(Sequence{0}, Position{1}, Position{5}).value();
    CHECK(listed(snapshot) == List{{1, 1}, {2, 2}, {3, 4}, {4, 5}}); // the other sequence has cell 3
    cache.offload(snapshot);
    CHECK(listed(snapshot) == List{{1, 0}, {2, 1}, {3, 2}, {4, 3}});
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end)); // cells 0 to 2 are free, and from 4 on
    REQUIRE(cache.reload(snapshot));
    const List reloaded = listed(snapshot);
    REQUIRE(reloaded.size() == 4);
    const auto rows = cache.rows(0);
    for (const auto& [position, cell] : reloaded) {
        CHECK(cell != 3);
        CHECK(rows.values(cell, 0, 0) == static_cast<float>(position + 1));
    }
    const CellSnapshot moved = std::move(snapshot);
    CHECK(listed(moved) == reloaded);
    CHECK(violation_of([&] { (void)listed(snapshot); }) != "none"); // NOLINT(bugprone-use-after-move)
}

TEST_CASE("a snapshot gives up its cells when it is destroyed, moved over or merged away") {
    auto cache = filled();
    {
        CellSnapshot a = cache.snapshot(Sequence{0}, Position{0}, Position{2}).value();
        CellSnapshot b = cache.snapshot(Sequence{0}, Position{2}, Position{5}).value();
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        CHECK(cache.statistics().free == 24 - 5);
        REQUIRE(cache.merge(a, std::move(b)));
        CHECK(cache.statistics().snapshots == 1);
        CHECK(a.to() == Position{5});
        b = cache.split(a, Position{4}).value();
        CHECK(a.to() == Position{4});
        CHECK(b.from() == Position{4});
        CHECK(b.to() == Position{5});
        CHECK(cache.statistics().free == 24 - 5);
        a = std::move(b);
        CHECK(cache.statistics().free == 24 - 1);
        CHECK(a.from() == Position{4});
    }
    CHECK(cache.statistics().free == 24);
    CHECK(cache.statistics().snapshots == 0);
    CHECK(audit(cache) == "");
}

TEST_CASE("a snapshot that is offloaded after an older one was destroyed leaves the others in place") {
    auto cache = filled();
    std::optional<CellSnapshot> first = cache.snapshot(Sequence{0}, Position{0}, Position{2}).value();
    const CellSnapshot second = cache.snapshot(Sequence{0}, Position{2}, Position{5}).value();
    CellSnapshot third = cache.snapshot(Sequence{0}, Position{5}).value();
    first.reset();
    cache.offload(third);
    CHECK(cache.statistics().snapshots == 1);
    CHECK(cache.statistics().snapshot_tokens == 3);
    CHECK(cache.statistics().offloaded == 1);
    CHECK(audit(cache) == "");
}

TEST_CASE("restore takes what lies below the snapshot from the sequence, and refuses if that is missing") {
    auto cache = filled();
    const CellSnapshot tail = cache.snapshot(Sequence{0}, Position{4}).value();
    CHECK(refused(cache, [&] { return cache.restore(Sequence{1}, tail); }) == Reason::cannot_resume);
    feed(cache, prompt(1, 0, {11, 12, 13}));
    CHECK(refused(cache, [&] { return cache.restore(Sequence{1}, tail); }) == Reason::cannot_resume);
    feed(cache, prompt(1, 3, {14, 15}));
    REQUIRE(cache.restore(Sequence{1}, tail));
    CHECK(values(cache, 1) == Values{5, 6, 11, 12, 13, 14});
}

TEST_CASE("rewind goes back as far as the sequence can resume") {
    auto cache = filled();
    CHECK(refused(cache, [&] { return cache.rewind(Sequence{0}, Position{7}); }) == Reason::not_next);
    REQUIRE(cache.rewind(Sequence{0}, Position{2}));
    CHECK(values(cache, 0) == Values{1, 2});
}

TEST_CASE("a snapshot of a window that has moved on carries the window and the sinks, and cannot be divided") {
    using Window = SlidingWindow<4>;
    numbers::Cache<Window> cache{
        numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}, Window{{.retention = 5, .sinks = 1}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    CellSnapshot snapshot = cache.snapshot(Sequence{0}, Position{9}).value();
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.tokens() == 6); // the sink, and what the retention keeps
    feed(cache, prompt(0, 10, {11, 12, 13, 14, 15, 16, 17}));
    CHECK(refused(cache, [&] { return cache.snapshot(Sequence{0}, Position{0}, Position{13}); })
          == Reason::cannot_resume);
    CHECK(refused(cache, [&] { return cache.split(snapshot, Position{9}); }) == Reason::cannot_split);
    CHECK(refused(cache, [&] { return cache.restore(Sequence{1}, snapshot, Position{7}); }) == Reason::cannot_resume);
    REQUIRE(cache.restore(Sequence{1}, snapshot, Position{9}));
    CHECK(values(cache, 1) == Values{1, 6, 7, 8, 9});
    REQUIRE(cache.restore(Sequence{0}, snapshot));
    CHECK(values(cache, 0) == Values{1, 6, 7, 8, 9, 10});
    CellSnapshot later = cache.snapshot(Sequence{0}).value();
    REQUIRE(cache.merge(snapshot, std::move(later))); // the later one takes its place
    CHECK(cache.statistics().snapshots == 1);
    CHECK(snapshot.to() == Position{10});
}

TEST_CASE("a snapshot that could not be restored is refused: the window has passed its end") {
    using Window = SlidingWindow<4>;
    numbers::Cache<Window> cache{
        numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}, Window{{.retention = 5}}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    CHECK(refused(cache, [&] { return cache.snapshot(Sequence{0}, Position{0}, Position{3}); })
          == Reason::cannot_resume);
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{0})); // nothing is missing there
}

TEST_CASE("a token below the window stays hidden after its sequence was emptied by a copy and restored") {
    numbers::Cache<SlidingWindow<1>> cache{numbers::small, {.sequences = 2, .capacity = 5, .batch = 4}};
    feed(cache, prompt(0, 0, {1}));
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    feed(cache, prompt(0, 1, {2}));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{0}));
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    const numbers::Numbers next = prompt(1, 1, {3});
    auto pass = numbers::begin(cache, next);
    numbers::put(*pass, cache.shape(), next);
    CHECK(numbers::sees(cache, *pass, 0) == Values{3});
}

TEST_CASE("a token that was moved without rotating its key is not shared at two positions") {
    cellar::Cache<StandardV<float>, FullCausal, UnrotatedShift> cache{numbers::small,
                                                                      {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    CellSnapshot tail = cache.snapshot(Sequence{0}, Position{1}).value();
    REQUIRE(cache.remove(Sequence{0}, Position{0},
                         Position{1})); // token 2 is at position 0 now, and at position 1 in the snapshot
    CHECK(refused(cache, [&] { return cache.restore(Sequence{0}, tail); }) == Reason::cannot_share);
    CellSnapshot head = cache.snapshot(Sequence{0}, Position{0}, Position{1}).value();
    CHECK(refused(cache, [&] { return cache.merge(head, std::move(tail)); }) == Reason::cannot_share);
    CHECK(tail.tokens() == 2); // a refused merge leaves the child as it was
}

TEST_CASE("rotating the keys of a sequence leaves those of its snapshot as they were") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {10, 20, 30}));
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    CHECK(numbers::held(cache, 0) == numbers::Held{{20, 19}, {30, 29}});
    CHECK(numbers::held(cache, 1) == numbers::Held{{10, 10}, {20, 20}, {30, 30}});
}

TEST_CASE("a defragmentation moves the cells of snapshots, too") {
    auto cache = filled();
    feed(cache, prompt(1, 0, {7, 8}));
    const CellSnapshot snapshot = cache.snapshot(Sequence{1}).value();
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    REQUIRE(cache.remove(Sequence{0}, Position{2}, to_end));
    cache.defragment();
    CHECK(cache.statistics().longest_free_run == 20);
    REQUIRE(cache.restore(Sequence{2}, snapshot));
    CHECK(values(cache, 2) == Values{7, 8});
    CHECK(audit(cache) == "");
}

TEST_CASE("a defragmentation may scatter the cells of a snapshot") {
    numbers::Cache<> cache{numbers::small, {.sequences = 3, .capacity = 20, .batch = 20}};
    for (int p = 0; p < 20; ++p) feed(cache, prompt(0, p, {-1}) + prompt(1, p, {-2}));
    Values kept(20);
    std::iota(kept.begin(), kept.end(), 1.0F);
    feed(cache, prompt(2, 0, kept));
    const CellSnapshot snapshot = cache.snapshot(Sequence{2}).value();
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end)); // leaves a hole behind each cell of sequence 0
    REQUIRE(cache.remove(Sequence{2}, Position{0}, to_end));
    cache.defragment();
    REQUIRE(cache.restore(Sequence{2}, snapshot));
    CHECK(values(cache, 2) == kept);
    CHECK(values(cache, 0) == Values(20, -1.0F));
    CHECK(audit(cache) == "");
}

TEST_CASE("an encoder's memory has snapshots of its inputs") {
    EncoderMemory<StandardV<float>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                           {.sequences = 2, .capacity = 8, .batch = 8}};
    for (const int p : {0, 3}) {
        auto pass = memory.write(Sequence{0}, Position{p}, 2).value();
        pass.put(0, Values{1, 2}, Values{1, 2});
        pass.commit();
    }
    CellSnapshot first = memory.snapshot(Sequence{0}, Position{0}, Position{3}).value();
    CellSnapshot all = memory.snapshot(Sequence{0}).value();
    CHECK(first.tokens() == 2);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(memory.restore(Sequence{1}, all, Position{2}));
    CHECK(memory.tokens(Sequence{1}) == 2);
    CellSnapshot later = memory.split(all, Position{3}).value();
    REQUIRE(memory.merge(first, std::move(later)));
    REQUIRE(memory.restore(Sequence{1}, first));
    CHECK(memory.tokens(Sequence{1}) == 4);
    REQUIRE(memory.rewind(Sequence{1}, Position{1}));
    CHECK(violation_of([&] { (void)memory.rewind(Sequence{1}, Position{-1}); })
          == "rewind: position -1, expected 0 or more");
    CHECK(memory.tokens(Sequence{1}) == 2);
    CHECK(audit(memory) == "");
}

TEST_CASE("mistakes with snapshots are violations") {
    auto cache = filled();
    auto other = filled();
    CellSnapshot snapshot = cache.snapshot(Sequence{0}, Position{2}, Position{4}).value();
    CellSnapshot foreign = other.snapshot(Sequence{0}).value();
    CellSnapshot gone = other.snapshot(Sequence{0}).value();
    const CellSnapshot moved = std::move(gone);
    const auto message = [](auto call) { return violation_of([&] { (void)call(); }); };
    CHECK(message([&] { return cache.snapshot(Sequence{0}, Position{3}, Position{2}); })
          == "snapshot: positions [3, 2) of sequence 0, expected 0 <= from <= to");
    CHECK(message([&] { return cache.snapshot(Sequence{3}); }) == "sequence 3, expected 0 to 2");
    CHECK(message([&] { return cache.restore(Sequence{0}, snapshot, Position{5}); })
          == "restore: position 5, expected 2 to 4, within the snapshot");
    CHECK(message([&] { return cache.restore(Sequence{0}, snapshot, Position{1}); })
          == "restore: position 1, expected 2 to 4, within the snapshot");
    CHECK(message([&] { return cache.rewind(Sequence{0}, Position{-1}); })
          == "rewind: position -1, expected 0 or more");
    CHECK(message([&] { return cache.split(snapshot, Position{1}); }) == "split: position 1, expected 2 to 4");
    CHECK(message([&] { return cache.merge(snapshot, std::move(snapshot)); })
          == "merge: the snapshots are one and the same, expected two");
    CellSnapshot apart = cache.snapshot(Sequence{0}, Position{5}).value();
    CHECK(message([&] { return cache.merge(snapshot, std::move(apart)); })
          == "merge: the child is of positions [5, 6), expected it to begin at 4, where the parent ends");
    CHECK(message([&] { return cache.restore(Sequence{0}, foreign); })
          == "restore: the snapshot [0, 6) is of another memory, which has 24 cells, expected one of this memory, "
             "which has 24");
    CHECK(message([&] { return cache.restore(Sequence{0}, gone); })
          == "the snapshot was moved from, expected one that was not");
    CHECK(message([&] { return gone.tokens(); }) == "the snapshot was moved from, expected one that was not");
    auto pass = numbers::begin(cache, prompt(0, 6, {7}));
    CHECK(message([&] { return cache.snapshot(Sequence{0}); })
          == "snapshot: a pass is open, expected it to be committed or dropped first");
    CHECK(message([&] { return cache.restore(Sequence{0}, snapshot); })
          == "restore: a pass is open, expected it to be committed or dropped first");
    CHECK(audit(other) == "");
}

TEST_CASE("a child that begins within its parent is a violation, also where the parent ends at the largest position") {
    numbers::Cache<SlidingWindow<2>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 2},
                                           {.cells = 8, .batch = 8, .positions = Positions::any},
                                           SlidingWindow<2>{{.retention = INT32_MAX}}};
    feed(cache, prompt(0, 0, {1, 2}) + prompt(0, INT32_MAX - 1, {3}));
    CellSnapshot parent = cache.snapshot(Sequence{0}).value();
    CHECK(parent.to() == to_end);
    CellSnapshot child = cache.snapshot(Sequence{0}, Position{1}).value();
    const std::string before = numbers::portrait(cache);
    CHECK(violation_of([&] { (void)cache.merge(parent, std::move(child)); })
          == "merge: the child is of positions [1, 2147483647), expected it to begin at 2147483647, where the parent "
             "ends");
    CHECK(numbers::portrait(cache) == before);
    CHECK(child.tokens() == 2);
    CHECK(parent.tokens() == 3);
    CHECK(audit(cache) == "");
}

TEST_CASE("a snapshot may outlive its memory, and a pass may be open when it is destroyed") {
    std::optional<numbers::Cache<>> cache = filled();
    std::optional<CellSnapshot> first = cache->snapshot(Sequence{0}).value();
    CellSnapshot last = cache->snapshot(Sequence{0}).value();
    REQUIRE(cache->remove(Sequence{0}, Position{0}, to_end));
    {
        auto pass = numbers::begin(*cache, prompt(0, 0, {7}));
        REQUIRE(pass);
        first.reset();
        numbers::put(*pass, cache->shape(), prompt(0, 0, {7}));
        pass->commit();
    }
    CHECK(audit(*cache) == "");
    cache.reset();
    CHECK(violation_of([&] { (void)last.to(); })
          == "the snapshot's memory was destroyed, expected it to live as long as its snapshots are used");
}

} // namespace test_snapshots
