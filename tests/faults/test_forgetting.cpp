// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults that other caches had with windows, resuming, refusals and dropped passes. Each test shows that cellar does
// not have the fault; comments describe the fault.
#include "../cache/numbers.hpp"

namespace test_forgetting {

using namespace cellar;
using numbers::feed;
using numbers::held;
using numbers::Numbers;
using numbers::prompt;
using numbers::sees;
using numbers::Values;
using numbers::values;

TEST_CASE("idle sequences hold no cells beyond their retention") {
    // The fault: only the sequences of a batch were trimmed. Idle ones kept a window and a batch.
    constexpr int sequences = 4;
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = sequences, .capacity = 100, .batch = 16}};
    for (int s = 0; s < sequences; ++s) feed(cache, prompt(s, 0, Values(16)));
    for (int s = 0; s < sequences; ++s) CHECK(cache.tokens(Sequence{s}) <= 5);
    for (int round = 1; round < 5; ++round)
        for (int s = 0; s < sequences; ++s) feed(cache, prompt(s, 16 * round, Values(16)));
}

TEST_CASE("a sequence cannot be resumed where part of the window is gone") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.capacity = 100, .batch = 16}};
    feed(cache, prompt(0, 0, Values(12)));
    REQUIRE(cache.range(Sequence{0}) == PositionRange{Position{8}, Position{11}});
    // A query at 10 would see 7 to 9, and 7 is gone.
    CHECK(!cache.can_resume(Sequence{0}, Position{10}));
    CHECK(cache.can_resume(Sequence{0}, Position{11}));
    CHECK(cache.can_resume(Sequence{0}, Position{12}));
}

TEST_CASE("a sequence cannot be resumed beyond its end") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}};
    feed(cache, prompt(0, 0, Values(12)));
    CHECK(!cache.can_resume(Sequence{0}, Position{13}));
    CHECK(!cache.can_resume(Sequence{0}, Position{100}));
    CHECK(!cache.can_resume(Sequence{1}, Position{1}));
}

TEST_CASE("a sequence resumes after its stop token is dropped, among several sequences") {
    numbers::Cache<SlidingWindow<4>> cache{numbers::small, {.sequences = 2, .capacity = 100, .batch = 16}};
    feed(cache, prompt(0, 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) + prompt(1, 0, Values(3)));
    REQUIRE(cache.can_resume(Sequence{0}, Position{9}));
    REQUIRE(cache.remove(Sequence{0}, Position{9}, to_end));
    const Numbers next = prompt(0, 9, {90});
    auto pass = numbers::begin(cache, next);
    numbers::put(*pass, cache.shape(), next);
    CHECK(sees(cache, *pass, 0) == Values{6, 7, 8, 90});
}

TEST_CASE("a longer retention lets a conversation go back further than the window") {
    // The fault: only the window was kept, so a prompt was computed again after a change near its end.
    numbers::Cache<SlidingWindow<>> cache{
        numbers::small, {.capacity = 100, .batch = 40}, SlidingWindow<>{4, {.retention = 20}}};
    feed(cache, prompt(0, 0, Values(40)));
    CHECK(cache.can_resume(Sequence{0}, Position{24}));
    REQUIRE(cache.remove(Sequence{0}, Position{24}, to_end));
    auto pass = numbers::begin(cache, prompt(0, 24, {1}));
    numbers::put(*pass, cache.shape(), prompt(0, 24, {1}));
    CHECK(sees(cache, *pass, 0).size() == 4);
}

TEST_CASE("a window takes cells for what is kept and for one batch") {
    const CacheLimits limits{.sequences = 8, .capacity = 4096, .batch = 512};
    CHECK(numbers::Cache<SlidingWindow<128>>{numbers::small, limits}.cells() == 8 * 129 + 512);
}

TEST_CASE("a refused begin evicts nothing") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small,
                                           {.sequences = 1, .capacity = 20, .batch = 4, .positions = Positions::any}};
    feed(cache, prompt(0, 0, {1, 2}));
    const Numbers late{{0, 1, 3}, {0, 1, 4}, {0, 1, 5}, {0, 1, 6}}; // equal positions: all are kept
    feed(cache, late);
    const std::string before = numbers::portrait(cache);
    CHECK(numbers::begin(cache, prompt(0, 2, {7, 8})).error() == Reason::full);
    CHECK(numbers::portrait(cache) == before);
}

TEST_CASE("a dropped pass evicts nothing") {
    // The fault: undoing the pass restored the written cells, but not those that had been purged for them.
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
    CHECK(cache.can_resume(Sequence{0}, Position{4}));
    CHECK(cache.can_resume(Sequence{1}, Position{3}));
}

TEST_CASE("every token of a prompt sees its whole window, after any number of passes") {
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

TEST_CASE("a token written out of order removes no other") {
    // The fault: writing a position removed all lower ones, to keep positions free of gaps.
    numbers::Cache<> cache{numbers::small, {.capacity = 20, .batch = 8, .positions = Positions::any}};
    feed(cache, prompt(0, 0, {1, 2, 3, 4}));
    feed(cache, {{0, 6, 5}, {0, 2, 6}, {0, 4, 7}});
    CHECK(values(cache, 0) == Values{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("a prompt that is kept completely leaves an empty batch, which is accepted") {
    numbers::Cache<> cache{numbers::small, {.capacity = 8, .batch = 8}};
    feed(cache, prompt(0, 0, {1, 2, 3}));
    CHECK(cache.can_resume(Sequence{0}, Position{3}));
    feed(cache, {});
    CHECK(values(cache, 0) == Values{1, 2, 3});
}

TEST_CASE("an empty batch takes no cell, and a full cache accepts it") {
    numbers::Cache<> cache{numbers::small, {.capacity = 3, .batch = 3}};
    feed(cache, {});
    CHECK(cache.statistics().free == 3);
    feed(cache, prompt(0, 0, {1, 2, 3}));
    auto pass = numbers::begin(cache, {});
    REQUIRE(pass);
    CHECK(pass->history().count == 0);
    CHECK(pass->keys(0).extent(0) == 0);
}

TEST_CASE("a batch longer than the limit is refused") {
    numbers::Cache<SlidingWindow<2>> cache{numbers::small, {.sequences = 1, .capacity = 100, .batch = 4}};
    CHECK(numbers::begin(cache, prompt(0, 0, Values(5))).error() == Reason::batch_too_long);
}

TEST_CASE("a capacity smaller than the batch is allowed") {
    numbers::Cache<> cache{numbers::small, {.capacity = 4, .batch = 16}};
    CHECK(numbers::begin(cache, prompt(0, 0, Values(5))).error() == Reason::full);
    feed(cache, prompt(0, 0, Values(4)));
    numbers::Cache<SlidingWindow<8>> sliding{numbers::small, {.capacity = 4, .batch = 16}};
    CHECK(numbers::begin(sliding, prompt(0, 0, Values(5))).error() == Reason::full);
    feed(sliding, prompt(0, 0, Values(4)));
}

TEST_CASE("a reserved pass takes no cells") {
    numbers::Cache<> cache{numbers::small, {.sequences = 2, .capacity = 4, .batch = 8}};
    for (int i = 0; i < 10; ++i) cache.reserve(8).commit();
    CHECK(cache.statistics().free == 8);
    feed(cache, prompt(0, 0, Values(8)));
    for (int i = 0; i < 10; ++i) cache.reserve(8).commit();
    CHECK(cache.tokens(Sequence{0}) == 8);
}

TEST_CASE("no pass has a larger mask than the reserved one") {
    // The fault: the reserved mask lacked the conversion that real passes need, so memory ran out later.
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

TEST_CASE("a group holds for its own pass and sequence only") {
    // The fault: such tokens were listed by position, which is not unique, and the list applied to later passes.
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

} // namespace test_forgetting
