// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of a hybrid that are asked for ahead of time.
#include "../violations.hpp"
#include "failing_allocations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <new>
#include <string>

namespace test_schedules {

using namespace cellar;
using namespace toy;

namespace {

toy::Memory memory(std::int32_t checkpoints) {
    return toy::Memory{
        layers, Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 100, .batch = 20}},
        Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 40, .batch = 20}},
        Recurrent{{1, {{1}}},
                  {.sequences = 3, .batch = 20, .rollback = 1, .checkpoints = checkpoints, .snapshots = 2}}};
}

float state_of(const toy::Memory& m, int sequence) {
    const Recurrent& recurrent = m.member<Recurrent>();
    return recurrent.view<Hash>(0, recurrent.state(Sequence{sequence}))(0);
}

} // namespace

TEST_CASE("a scheduled snapshot of a hybrid is that of a pass which ended there, in all members") {
    toy::Memory stops = memory(4);
    REQUIRE(feed(stops, text(0, 0, 9)));
    toy::Memory goes_on = memory(4);
    REQUIRE(goes_on.schedule(Sequence{0}, Position{9}));
    REQUIRE(feed(goes_on, text(0, 0, 20)));
    CHECK(goes_on.can_resume(Sequence{0}, Position{9}));
    const auto snapshot = goes_on.snapshot(Sequence{0}, Position{0}, Position{9}).value();
    CHECK_FALSE(goes_on.member<Sliding>().can_resume(Sequence{0}, Position{9}));
    REQUIRE(goes_on.restore(Sequence{1}, snapshot));
    CHECK(goes_on.next(Sequence{1}) == Position{9});
    CHECK(snapshot.of<Sliding>().tokens() == stops.snapshot(Sequence{0}).value().of<Sliding>().tokens());
    CHECK(state_of(goes_on, 1) == state_of(stops, 0));
    REQUIRE(feed(goes_on, text(1, 9, 5, 10)));
    REQUIRE(feed(stops, text(0, 9, 5, 10)));
    CHECK(state_of(goes_on, 1) == state_of(stops, 0));
}

TEST_CASE("if one member refuses a schedule, none has it") {
    toy::Memory m = memory(0);
    const Result<void> refused = m.schedule(Sequence{0}, Position{9});
    CHECK(refused.error() == Reason::no_checkpoints);
    CHECK(refused.error().member == 2);
    REQUIRE(feed(m, text(0, 0, 20)));
    CHECK_FALSE(m.member<Sliding>().can_resume(Sequence{0}, Position{9}));
    CHECK(m.member<Sliding>().tokens(Sequence{0}) == 5);
}

TEST_CASE("unschedule ends a schedule in all members") {
    toy::Memory m = memory(4);
    REQUIRE(m.schedule(Sequence{0}, Position{9}));
    m.unschedule(Sequence{0}, Position{9});
    m.unschedule(Sequence{0}, Position{9}); // does nothing
    REQUIRE(feed(m, text(0, 0, 20)));
    CHECK_FALSE(m.member<Sliding>().can_resume(Sequence{0}, Position{9}));
    CHECK_FALSE(m.member<Recurrent>().can_resume(Sequence{0}, Position{9}));
}

TEST_CASE("if there is no memory for a schedule, no member has it") {
    for (int successes = 0;; ++successes) {
        toy::Memory m = memory(4);
        const int failures = failures_of([&] { (void)m.schedule(Sequence{0}, Position{9}); }, [] {});
        REQUIRE(failures > 1);
        if (successes == failures) break;
        toy::Memory other = memory(4);
        {
            const FailingAllocations failing{successes};
            CHECK_THROWS_AS((void)other.schedule(Sequence{0}, Position{9}), std::bad_alloc);
        }
        REQUIRE(feed(other, text(0, 0, 20)));
        CHECK_FALSE(other.member<Sliding>().can_resume(Sequence{0}, Position{9}));
        CHECK_FALSE(other.member<Recurrent>().can_resume(Sequence{0}, Position{9}));
    }
}

TEST_CASE("schedules of a hybrid: the position lies ahead, and no pass is open") {
    toy::Memory m = memory(4);
    REQUIRE(feed(m, text(0, 0, 5)));
    const Refusal passed = m.schedule(Sequence{0}, Position{4}).error();
    CHECK(passed == Refusal{.reason = Reason::already_passed, .member = 0, .sequence = Sequence{0}});
    CHECK(passed.needed == 4);
    CHECK(passed.available == 5);
    CHECK(m.schedule(Sequence{0}, Position{5}).error() == passed);
    auto pass = m.begin(BatchBuilder{Sequence{0}, Position{5}}).value();
    CHECK(violation_of([&] { (void)m.schedule(Sequence{0}, Position{9}); })
          == "schedule: a pass is open, expected it to be committed or dropped first");
}

} // namespace test_schedules
