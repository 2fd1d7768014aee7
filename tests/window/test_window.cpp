// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace test_window {

using namespace cellar;

namespace {

template <WindowPolicy W>
void check_laws(const W& window) {
    Position visible{0};
    Position kept{0};
    for (std::int32_t p = 0; p < 500; ++p) {
        CAPTURE(p);
        const Position now_visible = window.oldest_visible(Position{p});
        const Position now_kept = window.oldest_kept(Position{p});
        REQUIRE(Position{0} <= now_kept);
        REQUIRE(now_kept <= now_visible);
        REQUIRE(now_visible <= Position{p});
        REQUIRE(visible <= now_visible);
        REQUIRE(kept <= now_kept);
        visible = now_visible;
        kept = now_kept;
    }
}

} // namespace

TEST_CASE("window: every policy obeys the laws, before and after it is resolved") {
    for (const std::int32_t sequences : {1, 3}) {
        for (const std::int32_t capacity : {4, 20, 1000}) {
            check_laws(FullCausal{}.resolved(sequences, capacity));
            check_laws(SlidingWindow<1>{}.resolved(sequences, capacity));
            check_laws(SlidingWindow<7>{}.resolved(sequences, capacity));
            check_laws(SlidingWindow<>{12, {.retention = 30, .sinks = 4}}.resolved(sequences, capacity));
            check_laws(ChunkedAttention<8>{}.resolved(sequences, capacity));
            check_laws(ChunkedAttention<>{5, {.retention = 40}}.resolved(sequences, capacity));
        }
    }
    check_laws(SlidingWindow<7>{});
    check_laws(ChunkedAttention<8>{});
}

TEST_CASE("sliding window: a token sees as many tokens as the width, itself included") {
    const SlidingWindow<4> window{};
    CHECK(window.oldest_visible(Position{0}) == Position{0});
    CHECK(window.oldest_visible(Position{3}) == Position{0});
    CHECK(window.oldest_visible(Position{4}) == Position{1});
    CHECK(SlidingWindow<>{4}.oldest_visible(Position{9}) == SlidingWindow<4>{}.oldest_visible(Position{9}));
    CHECK(SlidingWindow<>{4}.width() == 4);
}

TEST_CASE("sliding window: with several sequences, each keeps one token more") {
    CHECK(SlidingWindow<4>{}.resolved(1, 100).oldest_kept(Position{3}) == Position{0});
    CHECK(SlidingWindow<4>{}.resolved(1, 100).oldest_kept(Position{4}) == Position{1});
    CHECK(SlidingWindow<4>{}.resolved(1, 100).oldest_kept(Position{9}) == Position{6});
    CHECK(SlidingWindow<4>{}.resolved(2, 100).oldest_kept(Position{9}) == Position{5});
    CHECK(SlidingWindow<4>{{.retention = 8}}.resolved(2, 100).oldest_kept(Position{9}) == Position{2});
    // One more than the largest width must not overflow.
    const auto widest = SlidingWindow<>{INT32_MAX}.resolved(2, 100);
    CHECK(widest.oldest_kept(Position{INT32_MAX - 1}) == Position{0});
    CHECK(widest.cells(2, 100, 16) == 200);
    CHECK(ChunkedAttention<>{INT32_MAX}.resolved(2, INT32_MAX).oldest_kept(Position{9}) == Position{0});
}

TEST_CASE("sliding window: resolved again, it starts from what was asked for at first") {
    const SlidingWindow<> window{4};
    CHECK(window.resolved(2, 100).resolved(1, 100).oldest_kept(Position{9})
          == window.resolved(1, 100).oldest_kept(Position{9}));
    CHECK(window.resolved(1, 3).resolved(1, 100).oldest_kept(Position{9})
          == window.resolved(1, 100).oldest_kept(Position{9}));
}

TEST_CASE("sliding window: everything is kept if that needs no more cells") {
    const auto all = SlidingWindow<4>{{.retention = 8}}.resolved(1, 8);
    CHECK(all.oldest_kept(Position{1000}) == Position{0});
    CHECK(all.cells(1, 8, 512) == 8);
    const auto some = SlidingWindow<4>{{.retention = 8}}.resolved(1, 9);
    CHECK(some.oldest_kept(Position{1000}) == Position{993});
    CHECK(some.cells(1, 9, 512) == 8 + 512);
    // Sinks count, too.
    CHECK(SlidingWindow<4>{{.retention = 6, .sinks = 2}}.resolved(1, 8).oldest_kept(Position{1000}) == Position{0});
}

TEST_CASE("window: there are cells for what is kept and for a batch") {
    CHECK(FullCausal{}.resolved(3, 100).cells(3, 100, 16) == 300);
    CHECK(SlidingWindow<10>{}.resolved(1, 100).cells(1, 100, 16) == 10 + 16);
    CHECK(SlidingWindow<10>{}.resolved(3, 100).cells(3, 100, 16) == 3 * 11 + 16);
    CHECK(SlidingWindow<10>{{.sinks = 4}}.resolved(3, 100).cells(3, 100, 16) == 3 * 15 + 16);
    CHECK(ChunkedAttention<10>{}.resolved(3, 100).cells(3, 100, 16) == 3 * 11 + 16);
}

TEST_CASE("chunked attention: a token sees from the start of its chunk") {
    const ChunkedAttention<4> window{};
    CHECK(window.oldest_visible(Position{3}) == Position{0});
    CHECK(window.oldest_visible(Position{4}) == Position{4});
    CHECK(window.oldest_visible(Position{7}) == Position{4});
    CHECK(ChunkedAttention<>{4}.oldest_visible(Position{7}) == Position{4});
    CHECK(ChunkedAttention<>{4}.size() == 4);
    // The retention is at least the size, so it reaches the start of the chunk.
    CHECK(ChunkedAttention<4>{}.resolved(1, 100).oldest_kept(Position{7}) == Position{4});
    CHECK(ChunkedAttention<4>{}.resolved(1, 100).oldest_kept(Position{8}) == Position{5});
}

TEST_CASE("window: invalid arguments are violations") {
    CHECK(violation_of([] { (void)SlidingWindow<>{0}; }) == "SlidingWindow: the width is 0, expected at least 1");
    CHECK(violation_of([] { (void)ChunkedAttention<>{-3}; })
          == "ChunkedAttention: the size is -3, expected at least 1");
    CHECK(violation_of([] { (void)SlidingWindow<4>{{.sinks = -1}}; }) == "SlidingWindow: -1 sinks, expected 0 or more");
    CHECK(violation_of([] { (void)ChunkedAttention<4>{{.sinks = -1}}; })
          == "ChunkedAttention: -1 sinks, expected 0 or more");
    CHECK(violation_of([] { (void)SlidingWindow<4>{{.retention = 3}}.resolved(1, 100); })
          == "window: the retention is 3 tokens, expected at least the width 4");
}

} // namespace test_window
