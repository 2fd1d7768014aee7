// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// If one member refuses or fails, no member changes.
#include "../cache/numbers.hpp"
#include "../violations.hpp"
#include "failing_allocations.hpp"
#include "toy.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace test_all_or_none {

using namespace cellar;
using namespace toy;

namespace {

/// The refusal of `begin`. Checks that it changes nothing.
template <class M>
Refusal begin_refused(M& memory, const Text& tokens) {
    const std::string before = portrait(memory);
    const auto begun = memory.begin(batch_of(tokens));
    REQUIRE_FALSE(begun);
    CHECK(portrait(memory) == before);
    return begun.error();
}

toy::Memory with_batches(std::int32_t sliding, std::int32_t full, std::int32_t recurrent) {
    return toy::Memory{layers,
                       Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.capacity = 100, .batch = sliding}},
                       Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.capacity = 100, .batch = full}},
                       Recurrent{{1, {{1}}}, {.batch = recurrent}}};
}

} // namespace

TEST_CASE("all or none: a batch is too long for one member") {
    for (int member = 0; member < 3; ++member) {
        CAPTURE(member);
        toy::Memory memory = with_batches(member == 0 ? 4 : 8, member == 1 ? 4 : 8, member == 2 ? 4 : 8);
        REQUIRE(feed(memory, text(0, 0, 3)));
        CHECK(begin_refused(memory, text(0, 3, 5)) == Refusal{Reason::batch_too_long, member});
        CHECK(feed(memory, text(0, 3, 4, 4)));
    }
}

TEST_CASE("all or none: a member is full while another has room") {
    toy::Memory memory = toy::memory({.sequences = 2, .full_capacity = 6});
    REQUIRE(feed(memory, text(0, 0, 8)));
    CHECK(begin_refused(memory, text(1, 0, 5)) == Refusal{Reason::full, 1});
    CHECK(feed(memory, text(1, 0, 4)));
    CHECK(begin_refused(memory, text(1, 4, 1)) == Refusal{Reason::full, 1});
}

TEST_CASE("all or none: states refuse a tree of drafts, which caches accept") {
    toy::Memory memory = toy::memory();
    REQUIRE(feed(memory, text(0, 0, 3)));
    const std::string before = portrait(memory);
    const auto begun = memory.begin(BatchBuilder{Sequence{0}, Position{3}}.add_child(0).add_child(0));
    REQUIRE_FALSE(begun);
    CHECK(begun.error() == Refusal{Reason::cannot_branch, 2});
    CHECK(to_string(begun.error())
          == "member 2: cannot branch: a recurrent state follows one branch of a tree of drafts");
    CHECK(portrait(memory) == before);
    CHECK(memory.begin(BatchBuilder{Sequence{0}, Position{3}}.add_child(0).add_child(1)));
    using Caches = Hybrid<Repeat<Sliding, Full>, Sliding, Full>;
    Caches caches{2, Sliding{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 100, .batch = 4}},
                  Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 100, .batch = 4}}};
    CHECK(caches.begin(BatchBuilder{Sequence{0}, Position{0}}.add_child(0).add_child(0)));
}

TEST_CASE("all or none: a recurrent member prepares nothing for good when a later one refuses") {
    using Reversed = Hybrid<Repeat<Recurrent, Full>, Recurrent, Full>;
    Reversed memory{2, Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 4}},
                    Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 3, .batch = 4}}};
    REQUIRE(feed(memory, text(0, 0, 4), 2));
    const auto picture = [&] { return member_portrait(memory.member<0>()) + member_portrait(memory.member<1>()); };
    const std::string before = picture();
    CHECK(memory.begin(batch_of(text(1, 0, 3))).error() == Refusal{Reason::full, 1});
    CHECK(picture() == before);
    memory.reserve(4).drop();
    CHECK(picture() == before);
    REQUIRE(feed(memory, text(0, 4, 1, 5) + text(1, 0, 1), 2));
    CHECK(memory.member<0>().next(Sequence{1}) == Position{1});
}

namespace {

using Shifting = Cache<StandardV<float>, SlidingWindow<4>, numbers::Adding>;
using ShiftingFull = Cache<StandardV<float>, FullCausal, numbers::Adding>;
using Caches = Hybrid<Repeat<Shifting, ShiftingFull>, Shifting, ShiftingFull>;

/// Two sequences that share six tokens.
Caches shared_by_two(std::int32_t sliding_capacity, std::int32_t full_capacity) {
    Caches memory{2,
                  Shifting{{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                           {.sequences = 2, .capacity = sliding_capacity, .batch = 6}},
                  ShiftingFull{{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                               {.sequences = 2, .capacity = full_capacity, .batch = 6}}};
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 6});
    const std::vector<float> keys(12);
    const std::vector<float> values(6);
    for (int layer = 0; layer < 2; ++layer) pass->visit(layer, [&](auto& own, int i) { own.put(i, keys, values); });
    pass->commit();
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{6}));
    return memory;
}

} // namespace

TEST_CASE("all or none: a member has no room for the copies of a shift") {
    Caches memory = shared_by_two(6, 3);
    const auto picture = [&] { return member_portrait(memory.member<0>()) + member_portrait(memory.member<1>()); };
    const std::string before = picture();
    CHECK(memory.remove(Sequence{0}, Position{0}, Position{2}).error()
          == Refusal{.reason = Reason::full, .member = 1, .sequence = Sequence{0}});
    CHECK(picture() == before);
}

TEST_CASE("all or none: memory runs out in begin and in copy_prefix") {
    using Two = Hybrid<Repeat<Full, Recurrent>, Full, Recurrent>;
    Two memory{2, Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 5, .capacity = 40, .batch = 8}},
               Recurrent{{1, {{1}}}, {.sequences = 5, .batch = 8, .checkpoints = 24, .checkpoint_interval = 2}}};
    const auto picture = [&] { return member_portrait(memory.member<0>()) + member_portrait(memory.member<1>()); };
    int failures = 0;
    for (int p = 0; p < 24; ++p) { // 169 runs and 12 checkpoints in the end, more than planned
        const Text tokens = group(0, p, 8);
        const cellar::BatchBuilder batch = batch_of(tokens);
        const std::string before = picture();
        failures += failures_of([&] { (void)memory.begin(batch).has_value(); }, [&] { CHECK(picture() == before); });
        REQUIRE(feed(memory, tokens, 2));
    }
    CHECK(failures >= 2); // at least one in each member
    const std::string before = picture();
    CHECK(failures_of([&] { (void)memory.copy_prefix(Sequence{0}, Sequence{1}, Position{24}).has_value(); },
                      [&] { CHECK(picture() == before); })
          >= 2);
    CHECK(memory.member<0>().tokens(Sequence{1}) == 192);
    CHECK(memory.member<1>().next(Sequence{1}) == Position{24});
}

TEST_CASE("all or none: memory runs out in a removal with shifts and copies") {
    Caches memory = shared_by_two(20, 20);
    const auto picture = [&] { return member_portrait(memory.member<0>()) + member_portrait(memory.member<1>()); };
    const std::string before = picture();
    CHECK(failures_of([&] { (void)memory.remove(Sequence{0}, Position{3}, Position{4}).has_value(); },
                      [&] { CHECK(picture() == before); })
          > 2);
    CHECK(picture() != before);
    CHECK(memory.member<0>().range(Sequence{0})->last == Position{4});
    CHECK(memory.member<1>().range(Sequence{0})->last == Position{4});
}

TEST_CASE("all or none: an exception in the middle of a pass, in every layer") {
    toy::Memory memory = toy::memory();
    REQUIRE(feed(memory, text(0, 0, 3) + text(1, 0, 2)));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{2}, Position{3}));
    const std::string before = portrait(memory);
    const Text more = text(0, 3, 2) + text(2, 3, 1) + text(1, 2, 3);
    for (int stop = 0; stop < layers; ++stop) {
        CAPTURE(stop);
        const auto interrupted = [&] {
            auto pass = memory.begin(batch_of(more));
            REQUIRE(pass);
            fill(*pass, more, stop);
            pass->visit(stop, [](auto&, int) { throw std::runtime_error{"interrupted"}; });
        };
        CHECK_THROWS_AS(interrupted(), std::runtime_error);
        CHECK(portrait(memory) == before);
    }
    CHECK(feed(memory, more));
}

TEST_CASE("all or none: a pass that one member must not commit yet is committed in none") {
    toy::Memory memory = toy::memory();
    REQUIRE(feed(memory, text(0, 0, 3)));
    const std::string before = portrait(memory);
    const Text more = text(0, 3, 1, 4);
    {
        auto pass = memory.begin(batch_of(more));
        REQUIRE(pass);
        fill(*pass, more, 4); // the recurrent layer is the fifth
        CHECK(violation_of([&] { pass->commit(); })
              == "commit: layer 5 of the model (layer 2 of member 0) was not put, expected a put of every layer");
        CHECK(memory.member<Full>().tokens(Sequence{0}) == 4); // the pass is still open
        pass->drop();
        CHECK(violation_of([&] { pass->commit(); })
              == "the pass is over, expected one that was not committed, dropped or moved from");
    }
    CHECK(portrait(memory) == before);
    {
        auto pass = memory.begin(batch_of(more));
        fill(*pass, more);
        pass->of<Full>().drop();
        CHECK(violation_of([&] { pass->commit(); })
              == "the pass is over, expected one that was not committed, dropped or moved from");
    }
    CHECK(portrait(memory) == before);
}

TEST_CASE("all or none: a member has no memory to defragment") {
    toy::Memory memory = toy::memory({.placement = Placement::scattered});
    for (int p = 0; p < 6; ++p) REQUIRE(feed(memory, text(0, p, 1, p) + text(1, p, 1, p)));
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end)); // every other cell of both caches is free
    const std::string before = portrait(memory);
    const int failures = failures_of([&] { memory.defragment(); }, [&] { CHECK(portrait(memory) == before); });
    CHECK(failures >= 2);
    for (const CacheStatistics& now : {memory.member<Sliding>().statistics(), memory.member<Full>().statistics()})
        CHECK(now.longest_free_run == now.free);
    CHECK(portrait(memory) != before);
}

TEST_CASE("all or none: a member would defragment itself, and a later one refuses") {
    toy::Memory memory = toy::memory({.sequences = 2, .full_capacity = 6, .placement = Placement::contiguous});
    for (int p = 0; p < 6; ++p) REQUIRE(feed(memory, text(0, p, 1, p) + text(1, p, 1, p)));
    REQUIRE(memory.remove(Sequence{0}, Position{0}, to_end)); // every other cell of the sliding cache is free
    CHECK(begin_refused(memory, text(0, 0, 8)) == Refusal{Reason::full, 1});
    REQUIRE(feed(memory, text(0, 0, 6)));
    CHECK(audit(memory.member<Sliding>()).empty());
}

} // namespace test_all_or_none
