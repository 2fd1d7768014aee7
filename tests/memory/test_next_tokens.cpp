// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass of the next tokens of a sequence, asked for by their number, and limits that do not name a batch.
#include "../hybrid/toy.hpp"
#include "../violations.hpp"

#include <doctest/doctest.h>

namespace test_next_tokens {

using namespace cellar;

namespace {

const Sequence alice{1};

/// Commits `count` tokens twice, and compares with the same batches by position.
template <class M, class Begin>
void check(M memory, M expected, Begin begin) {
    for (int first = 0; first < 6; first += 3) {
        auto pass = begin(memory, alice, 3);
        REQUIRE(pass.has_value());
        toy::fill(*pass, toy::text(1, first, 3), memory.layers());
        pass->commit();
        REQUIRE(toy::feed(expected, toy::text(1, first, 3), expected.layers()));
    }
    CHECK(memory.next(alice) == Position{6});
    CHECK(begin(memory, alice, 0).value().tokens() == 0);
    CHECK(begin(memory, alice, 9).error() == Reason::batch_too_long);
    CHECK(memory.next(alice) == Position{6});
    CHECK(violation_of([&] { (void)begin(memory, alice, -1); }) == "begin: -1 tokens, expected 0 or more");
    CHECK(violation_of([&] { (void)begin(memory, Sequence{5}, 1); }).find("sequence 5, expected 0 to") == 0);
    if constexpr (std::is_same_v<M, toy::Memory>) {
        CHECK(toy::portrait(memory) == toy::portrait(expected));
    } else {
        CHECK(toy::contents(memory, 1) == toy::contents(expected, 1));
    }
}

const auto of_memory = [](auto& memory, Sequence s, std::int32_t count) { return memory.begin(s, count); };

toy::Full full() {
    return toy::Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 16, .batch = 8}};
}
toy::Recurrent recurrent() {
    return toy::Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8}};
}

} // namespace

TEST_CASE("the next tokens of a sequence are asked for by their number") {
    check(full(), full(), of_memory);
    check(recurrent(), recurrent(), of_memory);
    check(toy::memory(), toy::memory(), of_memory);
    check(full(), full(), [](toy::Full& memory, Sequence s, std::int32_t count) {
        PrefixTree tree{memory};
        return tree.begin(s, count);
    });
}

TEST_CASE("limits without a batch take a prompt of three tokens, and a step of all sequences") {
    toy::Full cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 64}};
    CHECK(cache.limits().batch == 64);
    CHECK(toy::feed(cache, toy::text(0, 0, 3), 1));
    const auto batch_of = [](const CacheLimits& limits) {
        return toy::Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}.limits().batch;
    };
    CHECK(batch_of({.sequences = 4, .capacity = 4096}) == 512);
    CHECK(batch_of({.sequences = 1000, .capacity = 16}) == 1000);
    CHECK(batch_of({.sequences = 4, .cells = 40}) == 40);
    CHECK(batch_of({.capacity = 64, .batch = 3}) == 3);
    CHECK(toy::Recurrent{{1, {{1}}}, {.sequences = 2}}.limits().batch == 512);
    CHECK(toy::Recurrent{{1, {{1}}}, {.sequences = 600}}.limits().batch == 600);
    // A window that forgets has a cell more for each token of a batch, and `bytes_for` knows it.
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 1};
    const CacheLimits limits{.sequences = 2, .capacity = 4096};
    const toy::Sliding sliding{shape, limits};
    CHECK(sliding.cells() == 2 * 5 + 512);
    CHECK(sliding.bytes() == toy::Sliding::bytes_for(shape, limits).data);
}

} // namespace test_next_tokens
