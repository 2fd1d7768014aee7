// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/ and docs/tutorial.md that is not in an example.
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace test_how_to {

using cellar::BatchBuilder;
using cellar::Position;
using cellar::Refusal;
using cellar::Result;
using cellar::Sequence;

namespace {

/// Stands for the model: keys and values of every token are ones.
template <class Pass>
void run(Pass& pass) {
    pass.put(0, std::vector<float>(static_cast<std::size_t>(pass.tokens()) * 8, 1.0F),
             std::vector<float>(static_cast<std::size_t>(pass.tokens()) * 8, 1.0F));
}

template <class Cache>
bool feed(Cache& cache, const BatchBuilder& tokens) {
    auto pass = cache.begin(tokens);
    if (!pass) return false;
    run(*pass);
    pass->commit();
    return true;
}

} // namespace

TEST_CASE("windows and retention") {
    const cellar::CacheShape shape{.layers = 1, .kv_heads = 2, .head_dim = 4};

    // [windows]
    cellar::SlidingWindow<4096> mistral;                             // the last 4096 tokens, itself included
    cellar::SlidingWindow<> from_file{4096};                         // the same, known at run time
    cellar::ChunkedAttention<8192> llama4_local;                     // from the beginning of its chunk
    cellar::SlidingWindow<4096> with_sinks{{.sinks = 4}};            // and the first four
    cellar::SlidingWindow<4096> drafts{{.retention = 4096 + 8 - 1}}; // eight drafted tokens can be taken back
    // [/windows]
    CHECK(mistral.oldest_visible(Position{5000}) == from_file.oldest_visible(Position{5000}));
    CHECK(llama4_local.oldest_visible(Position{8191}) == Position{0});
    CHECK(with_sinks.sinks() == 4);

    // [cells]
    const cellar::CacheLimits limits{.sequences = 4, .capacity = 32768, .batch = 512};
    cellar::Cache<cellar::StandardV<cellar::half>, cellar::SlidingWindow<4096>> cache{shape, limits, drafts};
    CHECK(cache.cells() == 4 * (4096 + 8 - 1) + 512);
    // [/cells]

    // [depth]
    using Small = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>>;
    Small small{shape, {.sequences = 1, .capacity = 100, .batch = 16}, cellar::SlidingWindow<4>{{.retention = 6}}};
    feed(small, BatchBuilder{Sequence{0}, Position{0}, 16}); // the newest token stands at 15
    CHECK(small.range(Sequence{0}) == cellar::PositionRange{Position{10}, Position{15}}); // six are kept
    CHECK(small.can_resume(Sequence{0}, Position{13}));       // three can go: 6 >= 4 + 3 - 1
    CHECK_FALSE(small.can_resume(Sequence{0}, Position{12})); // four cannot
    CHECK(small.rewind(Sequence{0}, Position{12}).error() == cellar::Reason::cannot_resume); // nothing has changed
    CHECK(small.rewind(Sequence{0}, Position{13}));
    CHECK(small.next(Sequence{0}) == Position{13}); // the next token replaces the former one at 13
    // [/depth]
}

TEST_CASE("many sequences with a shared prompt") {
    using Cache = cellar::Cache<>;
    Cache cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 9, .capacity = 64, .batch = 64}};
    const std::int32_t prompt_length = 40;

    // [prompt]
    const Sequence prompt{8}; // holds the prompt and is never continued
    feed(cache, BatchBuilder{prompt, Position{0}, prompt_length});
    for (std::int32_t user = 0; user < 8; ++user)
        REQUIRE(cache.copy_prefix(prompt, Sequence{user}, Position{prompt_length}));
    CHECK(cache.statistics().shared == prompt_length); // one copy of it, nine owners
    // [/prompt]

    // [step]
    BatchBuilder step;
    step.add(Sequence{0}, cache.next(Sequence{0}), 3); // user 0 has just asked something
    for (std::int32_t user = 1; user < 8; ++user) step.add(Sequence{user}, cache.next(Sequence{user}));
    auto pass = cache.begin(step); // one pass for all
    if (!pass) FAIL(cellar::to_string(pass.error()));
    run(*pass);
    pass->commit();
    // [/step]

    // [next]
    CHECK(cache.rewind(Sequence{3}, Position{prompt_length})); // the next user gets sequence 3 and keeps the prompt
    // [/next]
    CHECK(cache.tokens(Sequence{3}) == prompt_length);
    CHECK(cache.tokens(Sequence{0}) == prompt_length + 3);
}

TEST_CASE("what a scheduler asks, promises and parks") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 4, .cells = 128, .batch = 64}};
    const Sequence alice{0};
    const Sequence bob{1};
    const std::int32_t prompt_length = 40;
    const std::int32_t longest_answer = 60;

    // [admit]
    const std::int32_t length = prompt_length + longest_answer;
    if (!cache.promise(alice, length)) return; // wait: the memory has not so many free cells
    REQUIRE(feed(cache, BatchBuilder{alice, cache.next(alice), prompt_length})); // never `full`
    CHECK(cache.promised(alice) == longest_answer);
    CHECK(cache.free_cells() == 128 - length); // for all others
    // [/admit]

    // [victim]
    const BatchBuilder batch{bob, cache.next(bob), 50};
    const std::int32_t lacking = cache.cells_needed(batch) - cache.free_cells();
    if (lacking > 0 && cache.cells_freed_by(alice) >= lacking) {          // else no `full`, or not enough
        cellar::CellSnapshot parked = cellar::park(cache, alice).value(); // on the host; alice is empty
        REQUIRE(feed(cache, batch));
        CHECK(cellar::unpark(cache, alice, parked)); // goes on where it was
    }
    // [/victim]
    CHECK(cache.next(alice) == Position{prompt_length});
    CHECK(cache.next(bob) == Position{50});
}

TEST_CASE("snapshots") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 4, .capacity = 64, .batch = 64}};
    REQUIRE(feed(cache, BatchBuilder{Sequence{0}, Position{0}, 12}));

    // [snapshot]
    cellar::CellSnapshot turn = cache.snapshot(Sequence{0}).value(); // all 12 tokens of sequence 0, no data moves
    CHECK(turn.to() == Position{12});
    CHECK(cache.remove(Sequence{0}, Position{0}, cellar::to_end)); // another user gets sequence 0
    // [/snapshot]

    // [restore]
    const Result<void> restored = cache.restore(Sequence{2}, turn); // the first user is back, as sequence 2
    if (!restored) FAIL(cellar::to_string(restored.error()));
    CHECK(cache.next(Sequence{2}) == Position{12});
    CHECK(cache.restore(Sequence{3}, turn, Position{10})); // a second answer, from position 10 on
    // [/restore]
    CHECK(cache.next(Sequence{3}) == Position{10});

    // [split]
    cellar::CellSnapshot answer = cache.split(turn, Position{8}).value(); // `turn` keeps the prompt, positions 0 to 7
    CHECK(cache.restore(Sequence{1}, turn));
    CHECK(cache.restore(Sequence{1}, answer)); // needs the tokens below 8, which sequence 1 has
    CHECK(cache.merge(turn, std::move(answer)));
    // [/split]
    CHECK(turn.tokens() == 12);
    CHECK(cache.next(Sequence{1}) == Position{12});

    // [page]
    cache.offload(turn); // its cells are free again, unless sequences share them
    const std::int64_t bytes = turn.bytes();
    CHECK(cache.restore(Sequence{2}, turn));      // copies the data to cells of sequence 2
    const Result<void> back = cache.reload(turn); // into cells that any number of sequences may share
    if (!back) FAIL(cellar::to_string(back.error()));
    // [/page]
    CHECK(bytes == 12 * 2 * 2 * 4 * 4);
}

TEST_CASE("snapshots where passes do not end") {
    using Small = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<8>>;
    Small cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 2, .capacity = 1000, .batch = 64}};
    // [schedule]
    CHECK(cache.schedule(Sequence{0}, Position{20})); // of sequence 0, before its tokens are computed
    CHECK(feed(cache, BatchBuilder{Sequence{0}, Position{0}, 50}));
    const cellar::CellSnapshot prompt =
        cache.snapshot(Sequence{0}, Position{0}, Position{20}).value(); // ends the schedule
    // [/schedule]
    CHECK(prompt.tokens() == 9);
    CHECK(cache.tokens(Sequence{0}) == 9);
}

TEST_CASE("a long chat") {
    const std::int32_t context = 32;

    // [shift]
    using Cache = cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::RopeShift<cellar::Neox>>;
    Cache cache{{.layers = 1, .kv_heads = 2, .head_dim = 4},
                {.sequences = 1, .capacity = context, .batch = 16},
                {},
                cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(4, 10000.0)}};
    // [/shift]

    // [room]
    const std::int32_t keep = 4; // first tokens that always stay
    const auto make_room = [&](std::int32_t tokens) {
        const std::int32_t length = cache.next(Sequence{0}).value;
        if (length + tokens <= context) return Result<void>{};
        return cache.remove(Sequence{0}, Position{keep},
                            Position{keep + (length - keep) / 2}); // rotates the keys that move down
    };
    // [/room]

    for (int i = 0; i < 100; ++i) {
        REQUIRE(make_room(1));
        REQUIRE(feed(cache, BatchBuilder{Sequence{0}, cache.next(Sequence{0})}));
        const std::int32_t length = cache.next(Sequence{0}).value;
        CHECK(length <= context);
        CHECK(cache.tokens(Sequence{0}) == length);
        CHECK(cache.range(Sequence{0}) == cellar::PositionRange{Position{0}, Position{length - 1}});
    }
}

TEST_CASE("a long chat whose keys are rotated as they are read") {
    // [on-read]
    using Shift = cellar::RotateOnRead<cellar::Neox>;
    using Cache = cellar::Cache<cellar::StandardV<cellar::half>, cellar::FullCausal, Shift>;
    Cache cache{{.layers = 1, .kv_heads = 2, .head_dim = 4},
                {.sequences = 2, .capacity = 32, .batch = 16},
                {},
                cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(4, 10000.0)}}; // the same numbers
    // [/on-read]
    feed(cache, BatchBuilder{Sequence{0}, Position{0}, 10});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, cellar::to_end));
    REQUIRE(cache.remove(Sequence{1}, Position{4}, Position{7}));
    CHECK(cache.statistics().shared == 7); // no key was copied, though three have other positions now
}

TEST_CASE("a chat that begins with little memory") {
    // [grow]
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4},
                          {.capacity = 100'000, .initial_cells = 256, .batch = 64}};
    // [/grow]
    CHECK(cache.statistics().allocated == 256);
    for (int i = 0; i < 5; ++i) REQUIRE(feed(cache, BatchBuilder{Sequence{0}, cache.next(Sequence{0}), 64}));
    CHECK(cache.statistics().allocated == 384);
}

TEST_CASE("a long chat with layers of two kinds") {
    using Shift = cellar::RopeShift<cellar::Neox>;
    using Sliding = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>, Shift>;
    using Full = cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, Shift>;
    const cellar::CacheLimits limits{.sequences = 1, .capacity = 32, .batch = 16};
    const Shift shift{cellar::rope_frequencies(4)};
    cellar::Hybrid<cellar::Repeat<Sliding, Full>, Sliding, Full> memory{
        2, Sliding{{.layers = 1, .kv_heads = 2, .head_dim = 4}, limits, cellar::SlidingWindow<4>{}, shift},
        Full{{.layers = 1, .kv_heads = 2, .head_dim = 4}, limits, {}, shift}};
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 16}).value();
    for (int layer = 0; layer < 2; ++layer)
        pass.visit(layer, [](auto& own, int i) {
            const std::vector<float> rows(16 * 8, 1.0F);
            own.put(i, rows, rows);
        });
    pass.commit();
    // [hybrid-room]
    const Position oldest = memory.member<Sliding>().range(Sequence{0})->first; // 12: the window keeps 12 to 15
    CHECK(memory.remove(Sequence{0}, Position{4}, oldest));                     // in both members, or in none
    CHECK(memory.can_resume(Sequence{0}, memory.next(Sequence{0})));            // the window is complete, at 4 to 7
    // [/hybrid-room]
    CHECK(oldest == Position{12});
    CHECK(memory.next(Sequence{0}) == Position{8});
    CHECK(memory.remove(Sequence{0}, Position{2}, Position{6}).error() == cellar::Reason::cannot_resume);
    CHECK(memory.next(Sequence{0}) == Position{8}); // it would reach into the window
}

TEST_CASE("a shift of shared cells") {
    using Shift = cellar::RopeShift<cellar::Neox>;
    const Shift shift{cellar::rope_frequencies(4)};
    cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, Shift> cache{
        {.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 2, .capacity = 16, .batch = 16}, {}, shift};

    // [shared]
    const Sequence alice{0};
    const Sequence bob{1};
    feed(cache, BatchBuilder{alice, Position{0}, 5});
    REQUIRE(cache.copy_prefix(alice, bob, Position{5}));
    CHECK(cache.statistics().shared == 5);

    CHECK(cache.remove(bob, Position{1}, Position{3})); // bob's tokens 3 and 4 are copied, and move to 1 and 2
    CHECK(cache.tokens(bob) == 3);
    CHECK(cache.tokens(alice) == 5);       // alice's tokens and their keys are as they were
    CHECK(cache.statistics().shared == 1); // the first token
    // [/shared]

    const auto pass = cache.reserve(1);
    CHECK(pass.keys(0)(4, 1, 3) == 1.0F); // as it was put
}

TEST_CASE("the cell map") {
    // [map]
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 2, .capacity = 64, .batch = 8}};
    feed(cache, BatchBuilder{Sequence{0}, Position{0}, 4});
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    feed(cache, BatchBuilder{Sequence{1}, Position{3}, 2});
    feed(cache, BatchBuilder{Sequence{0}, Position{4}});

    CHECK(cellar::describe(cache)
          == "7 of 128 cells used, 3 shared, longest free run 62, 8192 bytes in 1 layer\n"
             "  0  ***00...........................................................\n"
             " 64  11..............................................................\n"
             "0  sequence 0: 5 tokens, positions 0 to 4\n"
             "1  sequence 1: 5 tokens, positions 0 to 4\n");
    // [/map]
}

// The map, the history and the masks that docs/concepts.md draws.
TEST_CASE("the map on the page of concepts") {
    const auto rows = [](const auto& window) {
        using Window = std::remove_cvref_t<decltype(window)>;
        const cellar::CacheLimits limits{.sequences = 2, .cells = 80, .batch = 4};
        cellar::Cache<cellar::StandardV<float>, Window> cache{
            {.layers = 1, .kv_heads = 2, .head_dim = 4}, limits, window};
        feed(cache, BatchBuilder{Sequence{0}, Position{0}, 4});
        REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
        feed(cache, BatchBuilder{Sequence{1}, Position{3}, 2});
        feed(cache, BatchBuilder{Sequence{0}, Position{4}});
        auto pass = cache.begin(BatchBuilder{}.add(Sequence{0}, Position{5}).add(Sequence{1}, Position{5}));
        const auto mask = pass->template mask<bool>();
        std::string drawn = std::to_string(pass->history().first) + ":";
        for (std::int64_t t = 0; t < 2; ++t) {
            drawn += ' ';
            for (std::int64_t c = 0; c < mask.extent(1); ++c) drawn += mask(t, c) ? 'o' : '-';
        }
        return drawn;
    };
    const std::string hidden(58, '-'); // cells 6 to 63
    CHECK(rows(cellar::FullCausal{}) == "0: oooooo" + hidden + "--- ooo---" + hidden + "ooo");
    CHECK(rows(cellar::SlidingWindow<3>{{.retention = 5}}) == "3: ooo" + hidden + "--- ---" + hidden + "ooo");
}

} // namespace test_how_to
