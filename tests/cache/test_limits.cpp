// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tokens.hpp"
#include "violations.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace test_limits {

using namespace cellar;
using cellar_test::text;

namespace {

template <class M>
Result<void> feed(M& memory, const cellar_test::Text& tokens) {
    auto pass = memory.begin(cellar_test::batch_of(tokens));
    if (!pass) return pass.error();
    const std::vector<float> rows(tokens.size());
    pass->put(0, rows, rows);
    pass->commit();
    return {};
}

using Full = Cache<>;
using Sliding = Cache<StandardV<float>, SlidingWindow<4>>;

} // namespace

TEST_CASE("the pool has sequences * capacity cells, or the given number") {
    CHECK(Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 10}}.cells() == 30);
    CHECK(Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 256, .cells = 1024}}.cells() == 1024);
    CHECK(Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 256, .cells = 1000, .padding = 64}}.cells()
          == 1024);
    CHECK(Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 10, .cells = 12}}.cells()
          == 12);
    // A window: sinks + retention for each sequence, and a batch.
    CHECK(Sliding{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 100, .batch = 7}}.cells()
          == 3 * 5 + 7);
    CHECK(
        Sliding{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = 100, .cells = 9, .batch = 7}}
            .cells()
        == 9);
}

TEST_CASE("one sequence may use the whole pool while the others are empty") {
    Full cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 8, .cells = 20, .batch = 20}};
    REQUIRE(feed(cache, text(5, 0, 20)));
    CHECK(feed(cache, text(0, 0, 1)).error() == Reason::full);
    REQUIRE(cache.remove(Sequence{5}, Position{19}, to_end));
    CHECK(feed(cache, text(0, 0, 1)));
}

TEST_CASE("with a window, a pool below the default may be full, which changes nothing") {
    // Each of 4 sequences keeps 5 tokens. With a batch of 4, the default would be 24 cells.
    Sliding cache{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                  {.sequences = 4, .capacity = 100, .cells = 14, .batch = 4}};
    for (int round = 0; round < 5; ++round)
        for (int s = 0; s < 2; ++s) REQUIRE(feed(cache, text(s, 4 * round, 4)));
    REQUIRE(feed(cache, text(2, 0, 4)));
    CHECK(cache.statistics().free == 0);
    const CacheStatistics before = cache.statistics();
    CHECK(feed(cache, text(3, 0, 1)).error() == Reason::full);
    CHECK(cache.statistics() == before);
    // A removal makes room, and so does a commit: the window forgets tokens of sequence 2.
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    CHECK(feed(cache, text(2, 4, 4)));
    CHECK(cache.tokens(Sequence{2}) == 5);
    CHECK(feed(cache, text(3, 0, 1)));
}

TEST_CASE("without a capacity, a window keeps everything only if it is larger than the pool") {
    Sliding cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.cells = 100, .batch = 4}};
    for (int p = 0; p < 80; p += 4) REQUIRE(feed(cache, text(0, p, 4)));
    CHECK(cache.tokens(Sequence{0}) == 4);
    Sliding small{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.cells = 3, .batch = 3}};
    CHECK(small.window().oldest_kept(Position{50}) == Position{0});
}

TEST_CASE("with a capacity, a window keeps everything if it is larger than that, however large the pool is") {
    const Sliding short_sequences{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                  {.capacity = 3, .cells = 100, .batch = 4}};
    CHECK(short_sequences.window().oldest_kept(Position{50}) == Position{0});
    const Sliding long_sequences{{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                 {.capacity = 100, .cells = 4, .batch = 4}};
    CHECK(long_sequences.window().oldest_kept(Position{50}) == Position{47});
}

TEST_CASE("a capacity that equals the window works: the cache forgets") {
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 1};
    for (const std::int32_t sequences : {1, 3}) {
        Sliding cache{shape, {.sequences = sequences, .capacity = 4}};
        for (int p = 0; p < 20; ++p)
            for (int s = 0; s < sequences; ++s) REQUIRE(feed(cache, text(s, p, 1)));
        CHECK(cache.tokens(Sequence{0}) == (sequences == 1 ? 4 : 5));
    }
    // The same retention, asked for, and with sinks.
    Sliding asked{shape, {.capacity = 4}, SlidingWindow<4>{{.retention = 4}}};
    Sliding sinks{shape, {.capacity = 6}, SlidingWindow<4>{{.sinks = 2}}};
    for (int p = 0; p < 20; ++p) REQUIRE((feed(asked, text(0, p, 1)) && feed(sinks, text(0, p, 1))));
    CHECK(asked.tokens(Sequence{0}) == 4);
    CHECK(sinks.tokens(Sequence{0}) == 6);
}

TEST_CASE("a window resolved for one cache is resolved again for another") {
    const Cache<StandardV<float>, SlidingWindow<>> a{
        {.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 4}, SlidingWindow<>{5}};
    CHECK(a.window().oldest_kept(Position{300}) == Position{0});
    Cache<StandardV<float>, SlidingWindow<>> b{
        {.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 400, .batch = 10}, a.window()};
    CHECK(b.window().oldest_kept(Position{300}) == Position{296});
    CHECK(b.cells() == 15);
    const Cache<StandardV<float>, SlidingWindow<>> c{
        {.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 400}, b.window()};
    CHECK(c.window().oldest_kept(Position{300}) == Position{295});
}

TEST_CASE("the data of bytes_for is the bytes of a cache") {
    const CacheLimits limits{.sequences = 256, .cells = 1024};
    const Full cache{{.layers = 2, .kv_heads = 3, .head_dim = 4}, limits};
    CHECK(Full::bytes_for({.layers = 2, .kv_heads = 3, .head_dim = 4}, limits).data == cache.bytes());
    const CacheShape mixed{
        .each_layer = {{1, 2, 3}, {4, 5, 6}, {.kv_heads = 1, .key_dim = 2, .value_dim = 3, .shares_layer = 0}}};
    CHECK(Full::bytes_for(mixed, limits).data == Full{mixed, limits}.bytes());
    CHECK(cache.bytes() == 2 * 2 * 1024 * 12 * 4);
}

TEST_CASE("impossible limits are violations") {
    const auto message = [](const CacheLimits& limits) {
        return violation_of([&] { const Full cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}; });
    };
    CHECK(message({}) == "limits: a capacity of 0 and 0 cells, expected one of them to be at least 1");
    CHECK(message({.capacity = -1, .cells = 5}).find("a capacity of -1") != std::string::npos);
    CHECK(message({.capacity = 5, .cells = -5}).find("-5 cells") != std::string::npos);
    CHECK(message({.sequences = 0, .capacity = 5}) == "limits: 0 sequences, expected at least 1");
    CHECK(message({.capacity = 5, .padding = (1 << 30) + 1}).find("a padding of") != std::string::npos);
    CHECK(message({.sequences = 1 << 20, .capacity = 1 << 20}).find("cells, expected at most 2147483584")
          != std::string::npos);
    CHECK(message({.cells = INT32_MAX}).find("cells, expected at most 2147483584") != std::string::npos);
}

} // namespace test_limits
