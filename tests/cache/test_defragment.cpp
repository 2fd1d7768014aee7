// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "numbers.hpp"
#include <cellar/cache/audit.hpp>

#include <stdexcept>

namespace test_defragment {

using namespace cellar;
using numbers::feed;
using numbers::Held;
using numbers::held;
using numbers::Numbers;
using numbers::prompt;
using numbers::Values;

namespace {

/// A backend whose moves throw half-way, after `moves_left` that succeed.
struct Failing : HostBackend {
    static constexpr int never = 1 << 30;
    static inline int moves_left = never;

    template <LayoutMapping Mapping, Element E>
    void move(const Mapping& mapping, Buffer<E>& buffer, std::span<const Move> moves) const {
        const bool fails = moves_left-- == 0;
        HostBackend::move(mapping, buffer, fails ? moves.first((moves.size() + 1) / 2) : moves);
        if (fails) throw std::runtime_error{"a move failed"};
    }
};

using FailingCache = Cache<StandardV<float>, FullCausal, numbers::Adding, Failing>;

constexpr int layers = 3;

/// 32 cells; sequences 0 and 1 use every other pair of cells, and share two pairs.
FailingCache scattered(Placement placement) {
    FailingCache cache{CacheShape{.layers = layers, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                       {.sequences = 4, .capacity = 8, .batch = 32, .placement = placement}};
    for (int p = 0; p < 8; ++p) {
        const auto x = static_cast<float>(p);
        feed(cache, {{0, p, x}, {1, p, 10 + x}, {2, 2 * p, 20 + x}, {2, 2 * p + 1, 30 + x}});
    }
    REQUIRE(cache.remove(Sequence{2}, Position{0}, to_end));
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{3}, Position{2}));
    return cache;
}

std::vector<Held> held_by_all(FailingCache& cache) {
    std::vector<Held> all;
    for (int s = 0; s < cache.limits().sequences; ++s)
        for (int layer = 0; layer < layers; ++layer) all.push_back(numbers::held(cache, s, layer));
    return all;
}

/// Repeats `operation` with the first move failing, then the second, and so on, until it succeeds. A failure must
/// change nothing. Returns the number of failures.
template <class Operation>
int failures_of(FailingCache& cache, Operation operation) {
    const std::vector<Held> before = held_by_all(cache);
    const std::string map = describe(cache);
    for (int failures = 0;; ++failures) {
        Failing::moves_left = failures;
        bool failed = false;
        try {
            operation();
        } catch (const std::runtime_error&) {
            failed = true;
        }
        Failing::moves_left = Failing::never;
        CHECK(held_by_all(cache) == before);
        CHECK(audit(cache).empty());
        if (!failed) return failures;
        CHECK(describe(cache) == map);
    }
}

} // namespace

TEST_CASE("a defragmentation that fails in any layer changes nothing") {
    FailingCache cache = scattered(Placement::scattered);
    CHECK(failures_of(cache, [&] { cache.defragment(); }) == 2 * layers);
    CHECK(cache.statistics().fragmentation() == 0);
}

TEST_CASE("a contiguous batch whose defragmentation fails changes nothing") {
    FailingCache cache = scattered(Placement::contiguous);
    const Numbers tokens = prompt(2, 0, Values(12));
    CHECK(failures_of(cache, [&] { numbers::begin(cache, tokens).value().drop(); }) == 2 * layers);
    CHECK(cache.statistics().fragmentation() == 0);
}

// So many sequences that few runs are planned for each: the room comes from `prepare_begin` alone.
TEST_CASE("a batch has room for its runs behind those that its defragmentation divides") {
    constexpr int batch = 500;
    constexpr int tokens = 2000;
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 5000,
                            .cells = 3 * tokens + batch / 2,
                            .batch = batch,
                            .placement = Placement::contiguous,
                            .positions = Positions::any}};
    for (int p = 0; p < tokens; p += batch / 2) {
        Numbers in_turn;
        for (int i = 0; i < batch / 2; ++i) in_turn = in_turn + Numbers{{0, p + i, 1}, {1, p + i, 2}};
        feed(cache, in_turn);
    }
    for (int p = 0; p < tokens; p += batch) feed(cache, prompt(2, p, Values(batch, 3)));
    REQUIRE(
        cache.remove(Sequence{1}, Position{0}, to_end)); // leaves single holes, in which the tokens of sequence 2 end
    Numbers apart;
    for (int i = 0; i < batch; ++i) apart.push_back({2, tokens + 2 * i, 4});
    feed(cache, apart);
    CHECK(cache.statistics().fragmentation() == 0);
    CHECK(cache.tokens(Sequence{2}) == tokens + batch);
    CHECK(audit(cache).empty());
}

TEST_CASE("of a run that lies on both sides of the cells that are left, only the cells behind them move") {
    numbers::Cache<> cache{numbers::small,
                           {.sequences = 2, .capacity = 10, .batch = 10, .placement = Placement::scattered}};
    feed(cache, prompt(0, 0, {9, 9, 9}));
    feed(cache, prompt(1, 0, {1, 2, 3, 4, 5, 6, 7}));
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    const Held before = held(cache, 1, 0);
    cache.defragment();
    CHECK(held(cache, 1, 0) == before);
    std::vector<Cell> cells;
    cache.visit_cells(Sequence{1}, [&](Position, Cell first, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i) cells.push_back(first + i);
    });
    CHECK(cells == std::vector<Cell>{3, 4, 5, 6, 0, 1, 2});
    CHECK(audit(cache).empty());
}

} // namespace test_defragment
