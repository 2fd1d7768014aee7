// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Computed sizes equal allocated sizes.

#include "../violations.hpp"
#include "every_model.hpp"
#include <cellar/attention/attend_bytes.hpp>
#include <cellar/cache/sizes.hpp>
#include <cellar/prefix/prefix_tree.hpp>
#include <cellar/window/chunked_attention.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace test_sizes {

using namespace cellar;
using namespace cellar::models;

namespace {

const CacheLimits tested_limits[] = {
    {.sequences = 1, .capacity = 6, .batch = 1},
    {.sequences = 1, .capacity = 40, .batch = 7},
    {.sequences = 3, .capacity = 40, .batch = 7, .padding = 16},
    {.sequences = 2, .capacity = 9, .batch = 9, .padding = 32},
};

template <class Layout, class Window>
void check_cache(const LayerShape& shape, const Window& window) {
    for (const CacheLimits& limits : tested_limits) {
        CAPTURE(limits.capacity);
        const CacheShape layers{
            .layers = 3, .kv_heads = shape.kv_heads, .head_dim = shape.key_dim, .value_dim = shape.value_dim};
        const Cache<Layout, Window> cache{layers, limits, window};
        CHECK(Cache<Layout, Window>::bytes_for(layers, limits, window).data == cache.bytes());
    }
}

template <class Layout>
void check_windows(const LayerShape& shape) {
    check_cache<Layout>(shape, FullCausal{});
    check_cache<Layout>(shape, SlidingWindow<8>{});
    check_cache<Layout>(shape, SlidingWindow<>{8, {.retention = 11, .sinks = 2}});
    check_cache<Layout>(shape, ChunkedAttention<8>{});
}

} // namespace

TEST_CASE("bytes_for has the bytes of a cache") {
    for (const LayerShape& shape : {LayerShape{2, 6, 6}, LayerShape{3, 8, 2}, LayerShape{1, 12, 0}}) {
        CAPTURE(shape.kv_heads);
        check_windows<StandardV<float>>(shape);
        check_windows<StandardV<half, float>>(shape);
        check_windows<PermutedV<float, bf16>>(shape);
    }
}

TEST_CASE("every model's memory can be made, and allocates as many bytes as computed") {
    for_each_model([]<class M>(M) {
        CAPTURE(std::string{M::description.name});
        for (const MemoryLimits& limits :
             {MemoryLimits{.attention = {.sequences = 2, .capacity = 8, .batch = 3}},
              MemoryLimits{.attention = {.capacity = 8, .batch = 3}, .states = {.rollback = 2, .snapshots = 3}}})
            CHECK(M::make(limits).bytes() == bytes(M::description, limits).data);
    });
}

TEST_CASE("a window shorter than the capacity also needs cells for a batch") {
    const CacheLimits limits{.sequences = 2, .capacity = 1000, .batch = 5};
    const auto sliding = GptOss_20B::make<LayerKind::sliding>(limits);
    const auto full = GptOss_20B::make<LayerKind::full>(limits);
    CHECK(sliding.cells() == 2 * (128 + 1) + 5); // with several sequences, each keeps one token more
    CHECK(full.cells() == 2 * 1000);
    CHECK(bytes(gpt_oss_20b, {.attention = limits}).data == sliding.bytes() + full.bytes());
}

// Llama 3.1 8B: a token is a key and a value of 8 heads * 128 elements * 2 bytes in each of 32 layers,
// 2 * 8 * 128 * 2 * 32 = 131072 bytes. 131072 tokens: 131072 * 131072 = 2^34.
TEST_CASE("sizes computed by hand: Llama 3.1 8B") {
    CHECK(bytes_per_token(llama31_8b) == 131072);
    CHECK(bytes_per_sequence(llama31_8b) == 0);
    CHECK(bytes(llama31_8b, {.attention = {.capacity = 131072}}).data == 17179869184);
}

// Gemma 3 4B: a token is 2 * 4 heads * 256 elements * 2 bytes = 4096 bytes per layer. Layers 5, 11, 17, 23 and 29 of 34
// are full: 5 * 4096 = 20480. The other 29 keep 1024 tokens: 29 * 1024 * 4096 = 121634816. 131072 tokens, passes of one
// token: 20480 * 131072 + 29 * (1024 + 1) * 4096 = 2684354560 + 121753600 = 2806108160.
TEST_CASE("sizes computed by hand: Gemma 3 4B") {
    CHECK(bytes_per_token(gemma3_4b) == 20480);
    CHECK(bytes_per_sequence(gemma3_4b) == 121634816);
    CHECK(bytes(gemma3_4b, {.attention = {.capacity = 131072, .batch = 1}}).data == 2806108160);
}

// 16 sequences, 131072 full cells, passes of 512 tokens: 5 * 4096 * 131072 + 29 * 4096 * (16 * (1024 + 1) + 512)
// = 2684354560 + 2008875008 = 4693229568: with several sequences, each window keeps one token more. If sliding layers
// had as many cells as full ones, it would be 34 * 4096 * 131072 = 18253611008.
TEST_CASE("sliding layers have as many cells as their window needs, however many the full ones have") {
    constexpr MemoryLimits limits{.attention = {.sequences = 16, .cells = 131072, .batch = 512}};
    static_assert(bytes(gemma3_4b, limits).data == 4693229568);
    const MemoryLimits small{.attention = {.sequences = 3, .cells = 64, .batch = 5}};
    const auto memory = GptOss_20B::make(small);
    CHECK(memory.member<GptOss_20B::Full<>>().cells() == 64);
    CHECK(memory.member<GptOss_20B::Sliding<>>().cells() == 3 * 64); // as long as a sequence can get
    const auto own = GptOss_20B::make({.attention = small.attention, .sliding = CacheLimits{.cells = 50}});
    CHECK(own.member<GptOss_20B::Sliding<>>().cells() == 50);
    const auto kept = GptOss_20B::make({.attention = {.capacity = 1000, .batch = 1}, .window = {.retention = 200}});
    CHECK(kept.member<GptOss_20B::Sliding<>>().cells() == 200 + 1);
}

TEST_CASE("largest_limits is the inverse of bytes") {
    const MemoryLimits asked{.attention = {.sequences = 200, .capacity = 8192, .batch = 512}};
    const std::int64_t budget = std::int64_t{24} << 30;
    for_each_model([&]<class M>(M) {
        CAPTURE(std::string{M::description.name});
        const auto found = largest_limits(M::description, asked, budget);
        if (bytes(M::description, asked).total() <= budget) REQUIRE(found);
        if (!found) return;
        CHECK(bytes(M::description, *found).total() <= budget);
        if (M::description.count(LayerKind::full) == 0) return; // nothing grows with the cells
        MemoryLimits more = *found;
        ++more.attention.cells;
        CHECK(bytes(M::description, more).total() > budget);
        CHECK(largest_limits(at_run_time(M::description), asked, budget).value().attention.cells
              == found->attention.cells);
    });
    const std::int32_t cells = largest_limits(llama31_8b, asked, budget)->attention.cells;
    CHECK(cells < 196608); // as many would be 24 GiB without bookkeeping
    CHECK(cells > 196608 * 0.99);
    CHECK(!largest_limits(llama31_8b, asked, 1000));
}

TEST_CASE("sizes of a description that contradicts itself, or has too many tensors in a state, are refused") {
    const MemoryLimits limits{.attention = {.capacity = 64, .batch = 8}};
    RunTimeDescription model = at_run_time(llama31_8b);
    CHECK(bytes(model, limits));
    CHECK(largest_limits(model, limits, 10).error().message == "not even one cell fits into 10 bytes");
    model.layers[3].kind = LayerKind::recurrent;
    for (int n = 1; n <= 6; ++n) {
        CAPTURE(n);
        model.layers[3].state.assign(static_cast<std::size_t>(n), StateDescription{"scan", {4, 8}});
        const auto found = bytes(model, limits);
        const auto largest = largest_limits(model, limits, std::int64_t{1} << 40);
        CHECK(found.has_value() == (n <= 4));
        CHECK(largest.has_value() == (n <= 4));
        if (n <= 4) continue;
        CHECK(found.error().message
              == "layer 3 has a state of " + std::to_string(n)
                     + " tensors, expected at most 4, or sizes by the type of the memory");
        CHECK(largest.error().message == found.error().message);
    }
    model.layers[3].state.clear();
    CHECK(bytes(model, limits).error().message == check(model).error().message);
    CHECK(largest_limits(model, limits, 1 << 30).error().message == check(model).error().message);
}

TEST_CASE("a tensor that no memory can have has no size") {
    Description model = mamba2_2_7b;
    model.state[0].extents[0] = 65536;
    model.state[0].extents[1] = 65537; // in 32 bits, the product would be 65536
    CHECK(violation_of([&] { static_cast<void>(bytes(model, {})); })
          == "state shape: a tensor of 2^28 elements or more, expected fewer");
}

TEST_CASE("what fits into a budget, as the page about sizes shows it") {
    // [budget]
    namespace models = cellar::models;
    const std::int64_t budget = std::int64_t{24} << 30; // 24 GiB
    const auto limits =
        models::largest_limits(models::llama31_8b, {.attention = {.sequences = 200, .batch = 512}}, budget);
    if (!limits) return; // not even one cell fits
    const cellar::MemoryBytes bytes = models::bytes(models::llama31_8b, *limits);
    CHECK(bytes.total() <= budget);
    CHECK(bytes.data == std::int64_t{limits->attention.cells} * (128 << 10));
    // [/budget]
    CHECK(limits->attention.cells > 196000);
    CHECK(limits->attention.cells < 196608);
}

TEST_CASE("what fits beside a prefix tree, as the page about sizes shows it") {
    const std::int64_t budget = std::int64_t{24} << 30;
    // [largest]
    using Memory = cellar::Cache<cellar::Blocked<cellar::bf16>>;
    const cellar::CacheShape shape{.layers = 32, .kv_heads = 8, .head_dim = 128};
    const auto bytes_of = [&](const cellar::CacheLimits& limits) {
        return Memory::bytes_for(shape, limits) + cellar::PrefixTree<Memory>::bytes_for(2'000, 1'000'000);
    };
    const auto limits = cellar::largest_limits({.sequences = 200, .batch = 512}, budget, bytes_of);
    if (!limits) return; // not even one cell fits
    CHECK(bytes_of(*limits).total() <= budget);
    // [/largest]
    CHECK(limits->cells > 195'000);
}

TEST_CASE("what passes add, as the page about sizes shows it") {
    // [uses]
    using Memory = cellar::Cache<cellar::Blocked<cellar::bf16>>;
    const cellar::CacheShape shape{.layers = 32, .kv_heads = 8, .head_dim = 128};
    const cellar::CacheLimits limits{.sequences = 200, .cells = 196'000, .batch = 512};
    constexpr cellar::PassUses pages{.lists = true, .page_size = 16}; // and .masks, if you ask for them
    const cellar::MemoryBytes bytes = Memory::bytes_for(shape, limits, {}, pages);
    CHECK(bytes.total() == bytes.data + bytes.bookkeeping + bytes.lists);
    // [/uses]
    CHECK(bytes.lists > 0);
    CHECK(bytes.masks == 0);
}

// DeepSeek-V3: a token is 512 + 64 elements of 2 bytes in each of 61 layers, without values: 576 * 2 * 61 = 70272.
// 131072 tokens: 70272 * 131072 = 9210691584. Keys and values of 128 heads (128 + 64 and 128 elements) would take
// 128 * 320 * 2 * 61 = 4997120 bytes per token.
TEST_CASE("sizes computed by hand: DeepSeek-V3") {
    CHECK(bytes_per_token(deepseek_v3) == 70272);
    CHECK(bytes_per_sequence(deepseek_v3) == 0);
    CHECK(bytes(deepseek_v3, {.attention = {.capacity = 131072}}).data == 9210691584);
}

// Mamba 2 2.7B: 2 * 2560 = 5120 elements are 80 heads of 64. The convolution of 4 keeps 3 * (5120 + 2 * 128) = 16128
// elements, the state has 80 * 64 * 128 = 655360: 671488 elements * 4 bytes * 64 layers = 171900928. One sequence of
// any length needs two states and the rows of one layer: 343801856 + 671488 * 4 = 346487808.
TEST_CASE("sizes computed by hand: Mamba 2 2.7B") {
    CHECK(mamba2_2_7b.state_elements() == 671488);
    CHECK(bytes_per_token(mamba2_2_7b) == 0);
    CHECK(bytes_per_sequence(mamba2_2_7b) == 171900928);
    CHECK(bytes_per_sequence<StandardV<bf16>, half>(mamba2_2_7b) == 171900928 / 2);
    CHECK(bytes(mamba2_2_7b, {.attention = {.capacity = 131072}}).data == 346487808);
    CHECK(bytes(mamba2_2_7b, {.attention = {.sequences = 8, .capacity = 1, .batch = 3}}).data
          == (8 + 3) * std::int64_t{171900928} + 8 * 671488 * 4);
}

// Rows of states start at multiples of 16 bytes, which does not change the sizes above.
TEST_CASE("the states of all models are multiples of 16 bytes, even with elements of 2 bytes") {
    for_each_model([]<class M>(M) {
        for (const StateDescription& tensor : M::description.state) CHECK(tensor.elements() % 8 == 0);
    });
}

TEST_CASE("the memory of attend, as the page about sizes shows it") {
    // [attend]
    // 200 users who decode together, with 32 heads of queries over 8 of keys, on two threads.
    constexpr std::int64_t most = cellar::attend_bytes({.kv_heads = 8, .key_dim = 128, .value_dim = 128},
                                                       {.tokens = 200, .sequences = 200, .heads = 32, .threads = 2});
    static_assert(most < 64 << 20); // 64 MiB
    // [/attend]
}

} // namespace test_sizes
