// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots that are asked for ahead of time, under windows that forget.
#include "../violations.hpp"
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace test_schedules {

using namespace cellar;
using numbers::feed;
using numbers::prompt;
using numbers::Values;
using numbers::values;

namespace {

using Window = SlidingWindow<4>;
using Sliding = numbers::Cache<Window>;

Sliding sliding(WindowOptions options = {}, std::int32_t cells = 0) {
    return Sliding{numbers::small, {.sequences = 3, .capacity = 100, .cells = cells, .batch = 20}, Window{options}};
}

/// Numbers first, first + 1, ... at the same positions.
numbers::Numbers counted(int sequence, int first, int end) {
    numbers::Numbers tokens;
    for (int p = first; p < end; ++p) tokens.push_back({sequence, p, static_cast<float>(p)});
    return tokens;
}

/// The tokens that a snapshot restores.
template <class C>
Values restored(C& cache, const CellSnapshot& snapshot) {
    REQUIRE(cache.restore(Sequence{2}, snapshot));
    return values(cache, 2);
}

/// Counts how often it is asked what it keeps.
struct CountingWindow : Window {
    static inline int asked = 0;
    Position oldest_kept(Position p) const {
        ++asked;
        return Window::oldest_kept(p);
    }
    CountingWindow resolved(std::int32_t sequences, std::int32_t capacity) const {
        return {Window::resolved(sequences, capacity)};
    }
};

} // namespace

TEST_CASE("a commit does not look at what is scheduled far ahead") {
    int asked[2] = {};
    for (const int scheduled : {1, 50}) {
        numbers::Cache<CountingWindow> cache{numbers::small, {.capacity = 100, .batch = 20}};
        feed(cache, counted(0, 0, 20));
        for (int i = 0; i < scheduled; ++i) REQUIRE(cache.schedule(Sequence{0}, Position{30 + i}));
        CountingWindow::asked = 0;
        feed(cache, counted(0, 20, 22));
        asked[scheduled == 1 ? 0 : 1] = CountingWindow::asked;
        CHECK(values(cache, 0) == Values{18, 19, 20, 21});
    }
    CHECK(asked[0] == asked[1]);
}

TEST_CASE("a scheduled snapshot equals that of a pass which ended there") {
    for (const WindowOptions options :
         {WindowOptions{}, {.retention = 6}, {.sinks = 2}, {.retention = 5, .sinks = 1}}) {
        Sliding stops = sliding(options);
        feed(stops, counted(0, 0, 9));
        Sliding goes_on = sliding(options);
        REQUIRE(goes_on.schedule(Sequence{0}, Position{9}));
        feed(goes_on, counted(0, 0, 20));
        feed(goes_on, counted(0, 20, 37));
        const CellSnapshot expected = stops.snapshot(Sequence{0}).value();
        const CellSnapshot scheduled = goes_on.snapshot(Sequence{0}, Position{0}, Position{9}).value();
        CHECK(scheduled.from() == expected.from());
        CHECK(scheduled.tokens() == expected.tokens());
        CHECK(restored(goes_on, scheduled) == restored(stops, expected));
        CHECK(goes_on.next(Sequence{2}) == Position{9});
        CHECK(audit(goes_on).empty());
    }
}

TEST_CASE("what is scheduled under chunks is the chunk before the position") {
    numbers::Cache<ChunkedAttention<4>> cache{numbers::small, {.capacity = 100, .batch = 20}};
    REQUIRE(cache.schedule(Sequence{0}, Position{7}));
    feed(cache, counted(0, 0, 15));
    CHECK(values(cache, 0) == Values{3, 4, 5, 6, 11, 12, 13, 14});
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{7}).value().tokens() == 4);
    CHECK(values(cache, 0) == Values{11, 12, 13, 14});
}

TEST_CASE("a sequence can go back to a scheduled position, and be copied up to it") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    feed(cache, counted(0, 0, 20));
    CHECK(cache.can_resume(Sequence{0}, Position{8}));
    CHECK(cache.resumable_prefix(Sequence{0}, Position{12}) == Position{8});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{8}));
    CHECK(values(cache, 1) == Values{3, 4, 5, 6, 7});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{2}, Position{20})); // which has not scheduled anything
    CHECK(values(cache, 2) == Values{15, 16, 17, 18, 19});
    REQUIRE(cache.rewind(Sequence{0}, Position{8}));
    CHECK(cache.next(Sequence{0}) == Position{8});
    feed(cache, counted(0, 8, 20));
    CHECK(cache.can_resume(Sequence{0}, Position{8})); // it lost nothing below the position, so the schedule stands
}

TEST_CASE("a schedule ends with a snapshot that ends there, not with others") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    REQUIRE(cache.schedule(Sequence{0}, Position{8})); // once more does nothing
    REQUIRE(cache.schedule(Sequence{0}, Position{12}));
    feed(cache, counted(0, 0, 20));
    CHECK(cache.tokens(Sequence{0}) == 5 + 5 - 1 + 5); // positions 3 to 7, 7 to 11 and 15 to 19
    const CellSnapshot end = cache.snapshot(Sequence{0}).value();
    const CellSnapshot second = cache.snapshot(Sequence{0}, Position{0}, Position{12}).value();
    CHECK(values(cache, 0) == Values{3, 4, 5, 6, 7, 15, 16, 17, 18, 19});
    const CellSnapshot first = cache.snapshot(Sequence{0}, Position{0}, Position{8}).value();
    CHECK(values(cache, 0) == Values{15, 16, 17, 18, 19});
    CHECK(cache.snapshot(Sequence{0}, Position{0}, Position{8}).error() == Reason::cannot_resume);
    CHECK(restored(cache, first) == Values{3, 4, 5, 6, 7});
    CHECK(restored(cache, second) == Values{7, 8, 9, 10, 11});
    CHECK(restored(cache, end) == Values{15, 16, 17, 18, 19});
    CHECK(audit(cache).empty());
}

TEST_CASE("a snapshot that lies behind scheduled positions has none of their tokens") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    feed(cache, counted(0, 0, 20));
    const CellSnapshot snapshot = cache.snapshot(Sequence{0}).value();
    CHECK(snapshot.tokens() == 5);
    CHECK(restored(cache, snapshot) == Values{15, 16, 17, 18, 19});
}

TEST_CASE("unschedule gives the cells back at once") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    REQUIRE(cache.schedule(Sequence{0}, Position{9}));
    feed(cache, counted(0, 0, 20));
    const Cell free = cache.statistics().free;
    cache.unschedule(Sequence{0}, Position{7}); // not scheduled
    cache.unschedule(Sequence{1}, Position{8});
    CHECK(cache.statistics().free == free);
    cache.unschedule(Sequence{0}, Position{8});
    CHECK(values(cache, 0) == Values{4, 5, 6, 7, 8, 15, 16, 17, 18, 19});
    CHECK(cache.statistics().free == free + 1);
    cache.unschedule(Sequence{0}, Position{9});
    CHECK(values(cache, 0) == Values{15, 16, 17, 18, 19});
    CHECK(cache.statistics().free == free + 6);
    CHECK(audit(cache).empty());
    CHECK(violation_of([&] { cache.unschedule(Sequence{0}, Position{-1}); })
          == "unschedule: position -1, expected 0 or more");
}

TEST_CASE("a schedule ends when its sequence becomes empty, a copy or restored, or loses tokens below it") {
    const auto keeps = [](auto change) { // whether position 8 is kept in a text of 20 tokens after the change
        Sliding cache = sliding();
        feed(cache, counted(1, 0, 3));
        feed(cache, counted(0, 0, 3));
        REQUIRE(cache.schedule(Sequence{0}, Position{8}));
        change(cache);
        const int next = cache.next(Sequence{0}).value;
        feed(cache, counted(0, next, 20));
        return cache.can_resume(Sequence{0}, Position{8});
    };
    CHECK(keeps([](Sliding&) {}));
    CHECK(keeps([](Sliding& cache) { REQUIRE(cache.remove(Sequence{0}, Position{1}, to_end)); })); // not reached yet
    CHECK(keeps([](Sliding& cache) { REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{0})); }));
    CHECK(keeps([](Sliding& cache) { REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{0}, Position{2})); }));
    CHECK_FALSE(keeps([](Sliding& cache) { REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end)); }));
    CHECK_FALSE(keeps(
        [](Sliding& cache) { REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1})); })); // later tokens moved
    CHECK_FALSE(keeps([](Sliding& cache) { REQUIRE(cache.copy_prefix(Sequence{1}, Sequence{0}, Position{3})); }));
    CHECK_FALSE(keeps([](Sliding& cache) {
        const CellSnapshot snapshot = cache.snapshot(Sequence{1}).value();
        REQUIRE(cache.restore(Sequence{0}, snapshot));
    }));
    CHECK_FALSE(keeps([](Sliding& cache) {
        feed(cache, counted(0, 3, 10));
        REQUIRE(cache.remove(Sequence{0}, Position{7}, to_end)); // it had been reached
    }));
    CHECK_FALSE(keeps([](Sliding& cache) {
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        feed(cache, counted(0, 0, 3));
    }));
}

TEST_CASE("an empty sequence keeps its schedules until all of its tokens are removed") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    REQUIRE(cache.remove(Sequence{0}, Position{5}, to_end));
    feed(cache, counted(0, 0, 20));
    CHECK(cache.can_resume(Sequence{0}, Position{8}));
    REQUIRE(cache.schedule(Sequence{1}, Position{8}));
    REQUIRE(cache.remove(Sequence{1}, Position{0}, Position{5}));
    feed(cache, counted(1, 0, 20));
    CHECK_FALSE(cache.can_resume(Sequence{1}, Position{8}));
}

TEST_CASE("closing a gap forgets at once what only ended schedules kept") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    REQUIRE(cache.schedule(Sequence{0}, Position{14}));
    feed(cache, counted(0, 0, 20));
    REQUIRE(cache.remove(Sequence{0}, Position{10}, Position{11}));
    CHECK(values(cache, 0) == Values{3, 4, 5, 6, 7, 15, 16, 17, 18, 19}); // position 8 is before the gap
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{3}, Position{18}});
    CHECK(audit(cache).empty());
}

TEST_CASE("what only a schedule kept that a removal ends makes room for the copies of that removal") {
    Sliding cache = sliding({}, 12);
    REQUIRE(cache.schedule(Sequence{0}, Position{14}));
    for (int p = 0; p < 20; p += 2) feed(cache, counted(0, p, p + 2));
    REQUIRE(values(cache, 0) == Values{9, 10, 11, 12, 13, 15, 16, 17, 18, 19});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, to_end));
    const numbers::Held shared = numbers::held(cache, 1);
    REQUIRE(cache.statistics().free == 2);
    REQUIRE(cache.remove(Sequence{0}, Position{10}, Position{11})); // five keys are shared
    CHECK(values(cache, 0) == Values{15, 16, 17, 18, 19});
    CHECK(cache.range(Sequence{0}) == PositionRange{Position{14}, Position{18}});
    CHECK(numbers::held(cache, 1) == shared);
    CHECK(cache.statistics().free == 2);
    CHECK(audit(cache) == "");
}

TEST_CASE("scheduled cells are in use: a pool that is planned too small is full") {
    Sliding cache = sliding({}, 25);
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    feed(cache, counted(0, 0, 20));
    CHECK(cache.statistics().free == 25 - 10);
    CHECK(numbers::begin(cache, counted(0, 20, 36)).error() == Reason::full);
    cache.unschedule(Sequence{0}, Position{8});
    feed(cache, counted(0, 20, 36));
}

TEST_CASE("a dropped pass reaches no scheduled position") {
    Sliding cache = sliding();
    REQUIRE(cache.schedule(Sequence{0}, Position{8}));
    feed(cache, counted(0, 0, 6));
    { auto pass = numbers::begin(cache, counted(0, 6, 20)); }
    REQUIRE(cache.remove(Sequence{0}, Position{5}, to_end));
    feed(cache, counted(0, 5, 20));
    CHECK(cache.can_resume(Sequence{0}, Position{8}));
}

TEST_CASE("a full cache keeps what is scheduled anyway, and the position must lie ahead") {
    numbers::Cache<> cache{numbers::small, {.capacity = 100, .batch = 20}};
    feed(cache, counted(0, 0, 5));
    CHECK(cache.schedule(Sequence{0}, Position{7}));
    cache.unschedule(Sequence{0}, Position{7});
    const Refusal behind{.reason = Reason::already_passed, .sequence = Sequence{0}};
    CHECK(cache.schedule(Sequence{0}, Position{5}).error() == behind);
    CHECK(
        to_string(cache.schedule(Sequence{0}, Position{3}).error())
        == "already passed: the sequence has come to that position already; sequence 0; asked for position 3, next is "
           "5");
    Sliding window = sliding();
    feed(window, counted(0, 0, 5));
    CHECK(window.schedule(Sequence{0}, Position{5}).error() == behind);
    CHECK(window.schedule(Sequence{0}, Position{0}).error() == behind);
    CHECK(violation_of([&] { (void)window.schedule(Sequence{0}, Position{-1}); })
          == "schedule: position -1, expected 0 or more, and less than to_end");
    CHECK(violation_of([&] { (void)window.schedule(Sequence{3}, Position{5}); }) == "sequence 3, expected 0 to 2");
    CHECK(violation_of([&] { window.unschedule(Sequence{3}, Position{5}); }) == "sequence 3, expected 0 to 2");
    auto pass = numbers::begin(window, counted(0, 5, 6));
    CHECK(violation_of([&] { (void)window.schedule(Sequence{0}, Position{9}); })
          == "schedule: a pass is open, expected it to be committed or dropped first");
    CHECK(violation_of([&] { window.unschedule(Sequence{0}, Position{9}); })
          == "unschedule: a pass is open, expected it to be committed or dropped first");
}

TEST_CASE("many scheduled positions in scattered cells are kept, each with its window") {
    Sliding cache = sliding({}, 100);
    const std::vector<int> positions{7, 14, 21, 28, 35, 42};
    for (const int p : positions) REQUIRE(cache.schedule(Sequence{0}, Position{p}));
    for (int p = 0; p < 60; ++p) feed(cache, counted(0, p, p + 1) + counted(1, p, p + 1));
    for (const int p : positions) {
        const CellSnapshot snapshot = cache.snapshot(Sequence{0}, Position{0}, Position{p}).value();
        const auto last = static_cast<float>(p);
        CHECK(restored(cache, snapshot) == Values{last - 5, last - 4, last - 3, last - 2, last - 1});
    }
    CHECK(cache.tokens(Sequence{0}) == 5);
    CHECK(audit(cache).empty());
}

} // namespace test_schedules
