// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/share-prefixes.md.
#include <cellar/cellar.hpp>
#include <cellar/prefix/audit.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace test_prefixes {

using cellar::BatchBuilder;
using cellar::PrefixMatch;
using cellar::PrefixPin;
using cellar::Result;
using cellar::Sequence;

namespace {

using Cache = cellar::Cache<>;
using List = std::vector<std::int32_t>;

/// Stands for the model.
template <class Pass>
void run(Pass& pass) {
    const std::vector<float> rows(static_cast<std::size_t>(pass.tokens()) * 8, 1.0F);
    pass.put(0, rows, rows);
}

List numbers(std::int32_t first, int count) {
    List list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), first);
    return list;
}
List operator+(List a, const List& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

} // namespace

TEST_CASE("prefixes that several users share") {
    // [tree]
    Cache cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 8, .cells = 256, .batch = 64}};
    cellar::PrefixTree tree{cache}; // the cache stays where it is, and lives longer

    // Computes the tokens that are new, as sequence s. Returns how many these are.
    const auto serve = [&](Sequence s, const std::vector<std::int32_t>& tokens) -> Result<std::int32_t> {
        const auto before_last = std::span{tokens}.first(tokens.size() - 1); // the model's output for it is needed
        const PrefixMatch match = tree.attach(s, before_last).value();
        const auto count = static_cast<std::int32_t>(tokens.size()) - match.length;
        auto pass = tree.begin(s, count); // evicts old prefixes if the cache is full
        if (!pass) return pass.error();
        run(*pass);
        pass->commit();
        if (const Result<void> kept = tree.insert(s, tokens); !kept) return kept.error(); // for the next user
        return count;
    };
    // [/tree]

    const List prompt = numbers(0, 40);
    const List alice = prompt + numbers(100, 5);
    const List bob = prompt + numbers(200, 7);
    // [users]
    CHECK(serve(Sequence{0}, alice).value() == 45); // a prompt of 40 tokens and a question of 5
    CHECK(serve(Sequence{1}, bob).value() == 7);    // the same prompt, another question
    CHECK(cache.remove(Sequence{0}, cellar::Position{0}, cellar::to_end));
    CHECK(serve(Sequence{2}, alice).value() == 1); // Alice's cells have stayed
    // [/users]
    CHECK(cache.statistics().free == 256 - 52 - 1);

    // [ask]
    CHECK(tree.match(bob) == PrefixMatch{.length = 47, .verified = 47});
    CHECK(tree.match(prompt) == PrefixMatch{.length = 40, .verified = 40});
    CHECK(tree.match(bob, /*salt=*/17) == PrefixMatch{}); // another adapter, or another image
    // [/ask]

    // [pin]
    std::vector<PrefixPin> pins;
    pins.push_back(tree.pin(prompt)); // stays until the pin is destroyed
    for (std::int32_t s = 0; s < 8; ++s) CHECK(cache.remove(Sequence{s}, cellar::Position{0}, cellar::to_end));
    tree.clear(); // evicts everything else
    CHECK(tree.match(alice).length == 40);
    // [/pin]
    CHECK(cellar::audit(tree) == "");

    // [counts]
    const cellar::PrefixStatistics statistics = tree.statistics();
    CHECK(statistics.tokens_attached == 40 + 44); // tokens that were not computed
    CHECK(statistics.tokens_asked == 44 + 46 + 44);
    CHECK(statistics.misses + statistics.partial_hits + statistics.hits == 3);
    CHECK(statistics.evictions == 2); // the two questions
    // [/counts]
}

TEST_CASE("prefixes that are offloaded") {
    Cache cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 2, .cells = 64, .batch = 64}};
    // [host]
    cellar::PrefixTree tree{cache, {.offloaded_bytes = std::int64_t{1} << 30}};
    // [/host]
    const auto serve = [&](const List& tokens) {
        const PrefixMatch match = tree.attach(Sequence{0}, std::span{tokens}.first(tokens.size() - 1)).value();
        auto pass = tree.begin(BatchBuilder{Sequence{0}, cache.next(Sequence{0}),
                                            static_cast<std::int32_t>(tokens.size()) - match.length});
        REQUIRE(pass);
        run(*pass);
        pass->commit();
        CHECK(tree.insert(Sequence{0}, tokens));
        CHECK(cache.remove(Sequence{0}, cellar::Position{0}, cellar::to_end));
        return match.length;
    };
    const List alice = numbers(0, 60);
    const List bob = numbers(100, 50);
    CHECK(serve(alice) == 0);
    CHECK(serve(bob) == 0);
    // [moved]
    CHECK(tree.statistics().offloaded_bytes
          == 60 * 2 * 2 * 4 * 4); // Alice's tokens: keys and values, 2 heads of 4 floats
    CHECK(serve(alice) == 59);
    // [/moved]
}

TEST_CASE("prefixes of a memory that keeps few positions") {
    struct Sum : cellar::StateTensor<1> {};
    using Memory = cellar::RecurrentMemory<cellar::States<Sum>>;
    Memory memory{{1, {{1}}}, {.sequences = 4, .batch = 64, .snapshots = 16}};
    // [weigh]
    cellar::PrefixTree tree{memory, {.usefulness = cellar::tokens_for_each_byte}};
    // [/weigh]
    const auto compute = [&](Sequence s, const List& tokens) {
        const auto count = static_cast<std::int32_t>(tokens.size()) - memory.next(s).value;
        auto pass = tree.begin(s, count);
        REQUIRE(pass);
        for (const cellar::MicroBatch& micro_batch : pass->micro_batches()) pass->mark_written(0, micro_batch);
        pass->commit();
    };
    const List prompt = numbers(0, 40);
    const List alice = prompt + numbers(100, 5);
    const List bob = prompt + numbers(200, 7);
    // [ends]
    compute(Sequence{0}, prompt);
    CHECK(tree.insert(Sequence{0}, prompt)); // where others go on
    compute(Sequence{0}, alice);
    CHECK(tree.insert(Sequence{0}, alice)); // where Alice goes on
    CHECK(tree.match(bob).length == 40);
    // [/ends]
    CHECK(tree.match(numbers(0, 39)) == PrefixMatch{.length = 0, .verified = 39});
}

TEST_CASE("prefixes of a window, kept at positions that a pass goes past") {
    using Memory = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<8>>;
    Memory memory{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 4, .capacity = 1000, .batch = 64}};
    cellar::PrefixTree tree{memory};
    const auto compute = [&](Sequence s, const List& tokens) {
        const auto count = static_cast<std::int32_t>(tokens.size()) - memory.next(s).value;
        auto pass = tree.begin(s, count);
        REQUIRE(pass);
        run(*pass);
        pass->commit();
    };
    const List prompt = numbers(0, 40);
    const List alice = prompt + numbers(100, 20);
    const List bob = prompt + numbers(200, 7);
    // [ahead]
    CHECK(memory.schedule(Sequence{0}, cellar::Position{40})); // the end of the prompt
    compute(Sequence{0}, alice);                               // prompt and question in one pass
    CHECK(tree.insert(Sequence{0}, prompt));
    CHECK(tree.insert(Sequence{0}, alice));
    CHECK(tree.match(bob).length == 40);
    // [/ahead]
    CHECK(memory.tokens(Sequence{0}) == 9); // the schedule has ended
}

TEST_CASE("room for a conversation that comes back") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 2, .cells = 64, .batch = 64}};
    cellar::PrefixTree tree{cache};
    const auto compute = [&](Sequence s, const List& tokens) {
        auto pass = tree.begin(BatchBuilder{s, cellar::Position{0}, static_cast<std::int32_t>(tokens.size())});
        REQUIRE(pass);
        run(*pass);
        pass->commit();
    };
    compute(Sequence{0}, numbers(0, 40));
    cellar::CellSnapshot parked = cache.snapshot(Sequence{0}).value();
    cache.offload(parked);
    CHECK(cache.remove(Sequence{0}, cellar::Position{0}, cellar::to_end));
    compute(Sequence{0}, numbers(500, 60));
    CHECK(tree.insert(Sequence{0}, numbers(500, 60)));
    CHECK(cache.remove(Sequence{0}, cellar::Position{0}, cellar::to_end));
    // [room]
    auto restored = cache.restore(Sequence{1}, parked);
    while (!restored && tree.make_room(restored.error())) restored = cache.restore(Sequence{1}, parked);
    // [/room]
    CHECK(restored.has_value());
}

} // namespace test_prefixes
