// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults of other caches around windows, resuming, refusals and dropped passes, each as its symptom.
#include "../cache/numbers.hpp"

using namespace cellar;
using numbers::feed;
using numbers::held;
using numbers::Numbers;
using numbers::prompt;
using numbers::sees;
using numbers::Values;
using numbers::values;

TEST_CASE("no room although other sequences hold cells beyond their window") {
    // Only the sequences of a batch were trimmed; idle ones kept a window and a batch.
    constexpr int sequences = 4;
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = sequences, .capacity = 100, .batch = 16}};
    for (int s = 0; s < sequences; ++s) feed(cache, prompt(s, 0, Values(16)));
    for (int s = 0; s < sequences; ++s) CHECK(cache.tokens({s}) <= 5);
    for (int round = 1; round < 5; ++round)
        for (int s = 0; s < sequences; ++s) feed(cache, prompt(s, 16 * round, Values(16)));
}

TEST_CASE("resuming allowed although part of the window is gone") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.capacity = 100, .batch = 16}};
    feed(cache, prompt(0, 0, Values(12)));
    REQUIRE(cache.range({0}) == PositionRange{{8}, {11}});
    // A query at 10 would see 7 to 9, and 7 is gone.
    CHECK(!cache.can_resume({0}, {10}));
    CHECK(cache.can_resume({0}, {11}));
    CHECK(cache.can_resume({0}, {12}));
}

TEST_CASE("resuming allowed beyond the end of the sequence") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}};
    feed(cache, prompt(0, 0, Values(12)));
    CHECK(!cache.can_resume({0}, {13}));
    CHECK(!cache.can_resume({0}, {100}));
    CHECK(!cache.can_resume({1}, {1}));
}

TEST_CASE("dropping the stop token breaks resuming with parallel sequences") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}};
    feed(cache, prompt(0, 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) + prompt(1, 0, Values(3)));
    REQUIRE(cache.can_resume({0}, {9}));
    REQUIRE(cache.remove({0}, {9}, to_end));
    const Numbers next = prompt(0, 9, {90});
    auto pass = numbers::begin(cache, next);
    numbers::put(*pass, cache.shape(), next);
    CHECK(sees(cache, *pass, 0) == Values{6, 7, 8, 90});
}

TEST_CASE("a stripped answer forces the whole prompt to be computed again") {
    // Only the window itself was kept; a longer retention lets a conversation go back further.
    numbers::Cache<SlidingWindow<>> cache{
        numbers::small, {.capacity = 100, .batch = 40}, SlidingWindow<>{4, {.retention = 20}}};
    feed(cache, prompt(0, 0, Values(40)));
    CHECK(cache.can_resume({0}, {24}));
    REQUIRE(cache.remove({0}, {24}, to_end));
    auto pass = numbers::begin(cache, prompt(0, 24, {1}));
    numbers::put(*pass, cache.shape(), prompt(0, 24, {1}));
    CHECK(sees(cache, *pass, 0).size() == 4);
}

TEST_CASE("a window that takes as many cells as the whole context or a batch for each sequence") {
    const CacheLimits limits{.sequences = 8, .capacity = 4096, .batch = 512};
    CHECK(numbers::Cache<SlidingWindow<128>>{numbers::small, limits}.cells() == 8 * 129 + 512);
}

TEST_CASE("a refused begin has already evicted what fell out of the window") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small,
                                           {.sequences = 1, .capacity = 20, .batch = 4, .positions = Positions::any}};
    feed(cache, prompt(0, 0, {1, 2}));
    const Numbers late{{0, 1, 3}, {0, 1, 4}, {0, 1, 5}, {0, 1, 6}}; // equal positions: all are kept
    feed(cache, late);
    const std::string before = numbers::portrait(cache);
    CHECK(numbers::begin(cache, prompt(0, 2, {7, 8})).error() == Reason::full);
    CHECK(numbers::portrait(cache) == before);
}

TEST_CASE("a failed pass loses what its tokens would have pushed out") {
    // The roll-back restored the cells that were written, not those that had been purged for them.
    numbers::Cache<SlidingWindow<3>> cache{numbers::small, {.sequences = 2, .capacity = 30, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}) + prompt(1, 0, {5, 6, 7}));
    const auto first = held(cache, 0);
    {
        const Numbers tokens = prompt(0, 4, {8, 9, 10, 11}) + prompt(1, 3, {12, 13, 14});
        auto pass = numbers::begin(cache, tokens);
        numbers::put(*pass, cache.shape(), tokens);
    }
    CHECK(held(cache, 0) == first);
    CHECK(values(cache, 1) == Values{5, 6, 7});
    CHECK(cache.can_resume({0}, {4}));
    CHECK(cache.can_resume({1}, {3}));
}

TEST_CASE("a prompt after the window has wrapped does not see what is in its window") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.capacity = 100, .batch = 6}};
    int position = 0;
    for (const int length : {3, 6, 1, 5, 2, 6, 6, 1}) {
        Numbers tokens;
        for (int i = 0; i < length; ++i) tokens.push_back({0, position + i, static_cast<float>(position + i)});
        auto pass = numbers::begin(cache, tokens);
        REQUIRE(pass);
        numbers::put(*pass, cache.shape(), tokens);
        for (int i = 0; i < length; ++i) {
            Values expected;
            for (int p = std::max(0, position + i - 3); p <= position + i; ++p)
                expected.push_back(static_cast<float>(p));
            CHECK(sees(cache, *pass, i) == expected);
        }
        pass->commit();
        position += length;
    }
}

TEST_CASE("earlier positions vanish when a token is written out of order") {
    // Writing a position made everything below it go, so that positions stayed free of gaps.
    numbers::Cache<> cache{numbers::small, {.capacity = 20, .batch = 8, .positions = Positions::any}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    feed(cache, {{0, 6, 5}, {0, 2, 6}, {0, 4, 7}});
    CHECK(values(cache, 0) == Values{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a fully cached prompt leaves nothing to do and crashes") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    CHECK(cache.can_resume({0}, {3}));
    feed(cache, {});
    CHECK(values(cache, 0) == Values{1, 2, 3});
}

TEST_CASE("an empty batch takes a cell or is refused as full") {
    numbers::Cache<> cache{numbers::small, {.capacity = 3, .batch = 3}};
    feed(cache, {});
    CHECK(cache.statistics().free == 3);
    feed(cache, prompt(0, 0, {1, 2, 3}));
    auto pass = numbers::begin(cache, {});
    REQUIRE(pass);
    CHECK(pass->history().count == 0);
    CHECK(pass->keys(0).extent(0) == 0);
}

TEST_CASE("a batch longer than announced reaches the memory") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.sequences = 1, .capacity = 100, .batch = 4}};
    CHECK(numbers::begin(cache, prompt(0, 0, Values(5))).error() == Reason::batch_too_long);
}

TEST_CASE("a context smaller than a batch breaks the cache") {
    numbers::Cache<> cache{numbers::small, {.capacity = 4, .batch = 16}};
    CHECK(numbers::begin(cache, prompt(0, 0, Values(5))).error() == Reason::full);
    feed(cache, prompt(0, 0, Values(4)));
    numbers::Cache<SlidingWindow<8>> sliding{numbers::small, {.capacity = 4, .batch = 16}};
    CHECK(numbers::begin(sliding, prompt(0, 0, Values(5))).error() == Reason::full);
    feed(sliding, prompt(0, 0, Values(4)));
}

TEST_CASE("reserving a pass takes cells away") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 4, .batch = 8}};
    for (int i = 0; i < 10; ++i) cache.reserve(8).commit();
    CHECK(cache.statistics().free == 8);
    feed(cache, prompt(0, 0, Values(8)));
    for (int i = 0; i < 10; ++i) cache.reserve(8).commit();
    CHECK(cache.tokens({0}) == 8);
}

TEST_CASE("the reserved pass is not the worst case") {
    // Its mask was made without the conversion that real passes need, so memory ran out later.
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 50, .batch = 8, .padding = 32}};
    const void* memory = nullptr;
    {
        auto pass = cache.reserve(8);
        const auto reserved = pass.mask<half>();
        CHECK(reserved.extent(0) == 8);
        CHECK(reserved.extent(1) == cache.cells());
        memory = reserved.data_handle();
    }
    for (int p = 0; p < 96; p += 8) {
        auto pass = numbers::begin(cache, prompt(0, p, Values(8)));
        REQUIRE(pass);
        CHECK(pass->mask<half>().data_handle() == memory);
        pass->put(0, Values(16), Values(8));
        pass->commit();
    }
}

TEST_CASE("the second image of a conversation makes tokens of the next pass see one another") {
    // The list of such rows was kept by position, which is not unique, and leaked into later passes.
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 20, .batch = 8}};
    const Numbers image{{0, 0, 1, 0}, {0, 1, 2, 0}, {1, 0, 3}, {1, 1, 4}};
    auto pass = numbers::begin(cache, image);
    numbers::put(*pass, cache.shape(), image);
    CHECK(sees(cache, *pass, 0) == Values{1, 2});
    CHECK(sees(cache, *pass, 2) == Values{3}); // same position, other sequence
    pass->commit();
    const Numbers text{{0, 2, 5}, {0, 3, 6}, {1, 2, 7}, {1, 3, 8}};
    auto next = numbers::begin(cache, text);
    numbers::put(*next, cache.shape(), text);
    CHECK(sees(cache, *next, 0) == Values{1, 2, 5});
    CHECK(sees(cache, *next, 2) == Values{3, 4, 7});
}
