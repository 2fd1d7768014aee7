// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "numbers.hpp"

namespace test_shape {

using namespace cellar;
using numbers::feed;
using numbers::Held;
using numbers::Numbers;
using numbers::prompt;

TEST_CASE("layers may have different shapes, share memory, and have no values") {
    const CacheShape shape{.each_layer = {{2, 4, 3}, {1, 2, 5}, {2, 4, 3, 0}, {1, 6, 0}}};
    const CacheLimits limits{.sequences = 2, .capacity = 4, .batch = 4};
    Cache<PermutedV<half, float>, FullCausal, numbers::Adding> cache{shape, limits};
    CHECK(cache.shape().layers == 4);
    CHECK(cache.bytes() == 8 * (2 * 4 * 2 + 2 * 3 * 4 + 1 * 2 * 2 + 1 * 5 * 4 + 1 * 6 * 2));
    feed(cache, prompt(0, 0, {1, 2, 3}));
    auto pass = numbers::begin(cache, prompt(0, 3, {4}));
    numbers::put(*pass, shape, prompt(0, 3, {4}));
    CHECK(pass->keys(0).extent(1) == 2);
    CHECK(pass->keys(1).extent(2) == 2);
    CHECK(pass->values(1).extent(2) == 5);
    CHECK(pass->values(3).size() == 0);
    CHECK(pass->keys(2).data_handle() == pass->keys(0).data_handle());
    CHECK(pass->values(2).data_handle() == pass->values(0).data_handle());
    CHECK(static_cast<float>(pass->keys(3)(1, 0, 5)) == 2);
    pass->drop();
    // Keys that two layers share are shifted once.
    REQUIRE(cache.remove(Sequence{0}, Position{0}, Position{1}));
    const Numbers probe{{0, 2, 9}};
    auto after = numbers::begin(cache, probe);
    numbers::put(*after, shape, probe);
    for (const int layer : {0, 1, 2}) CHECK(numbers::seen(cache, *after, 0, layer) == Held{{2, 1}, {3, 2}, {9, 9}});
}

TEST_CASE("one shape can be given for all layers") {
    const CacheShape shape{.layers = 3, .kv_heads = 2, .head_dim = 8};
    CHECK(shape.layers == 3);
    CHECK(shape[2].kv_heads == 2);
    CHECK(shape[2].key_dim == 8);
    CHECK(shape[2].value_dim == 8);
    CHECK(CacheShape{.layers = 3, .kv_heads = 2, .head_dim = 8, .value_dim = 4}[1].value_dim == 4);
}

TEST_CASE("invalid shapes are violations") {
    const auto violation = [](std::vector<LayerShape> layers) {
        return violation_of([&] { (void)detail::resolved({.each_layer = layers}); });
    };
    CHECK(violation({}) == "shape: no layers, expected at least 1");
    CHECK(violation_of([] { (void)detail::resolved({.layers = 0, .kv_heads = 1, .head_dim = 2}); })
          == "shape: no layers, expected at least 1");
    CHECK(violation_of([] { (void)detail::resolved({.layers = -1, .kv_heads = 1, .head_dim = 2}); })
          == "shape: no layers, expected at least 1");
    CHECK(violation({{1, 2, 2}, {0, 2, 2}})
          == "shape: layer 1 has 0 heads, a key_dim of 2 and a value_dim of 2, expected at least 1, 1 and 0");
    CHECK(violation({{1, 0, 2}})
          == "shape: layer 0 has 1 heads, a key_dim of 0 and a value_dim of 2, expected at least 1, 1 and 0");
    CHECK(violation({{1, 2, -1}})
          == "shape: layer 0 has 1 heads, a key_dim of 2 and a value_dim of -1, expected at least 1, 1 and 0");
    CHECK(violation({{1 << 14, 1, 1 << 14}})
          == "shape: layer 0 has rows of 268435456 elements, expected fewer than 2^28");
    CHECK(violation({{1 << 24, 1 << 24, 0}})
          == "shape: layer 0 has rows of 281474976710656 elements, expected fewer than 2^28");
    CHECK(violation({{1 << 14, 1, (1 << 14) - 1}}) == "none");
    const LayerShape half_of_all{1 << 14, (1 << 14) - 1, 1};
    CHECK(violation({half_of_all, {1 << 14, (1 << 14) - 1, 0}}) == "none");
    CHECK(violation({half_of_all, half_of_all})
          == "shape: a token has 536870912 elements in all layers, expected fewer than 2^29");
    CHECK(violation_of([] { (void)detail::resolved({.layers = INT32_MAX, .kv_heads = 1 << 14, .head_dim = 1 << 13}); })
          == "shape: a token has 576460752034988032 elements in all layers, expected fewer than 2^29");
    CHECK(violation({{1, 2, 2, 0}}) == "shape: layer 0 shares layer 0, expected an earlier one, or -1");
    CHECK(violation({{1, 2, 2}, {1, 2, 2, 2}}) == "shape: layer 1 shares layer 2, expected an earlier one, or -1");
    CHECK(violation({{1, 2, 2}, {1, 2, 2, -2}}) == "shape: layer 1 shares layer -2, expected an earlier one, or -1");
    CHECK(violation({{1, 2, 2}, {1, 2, 2, 0}, {1, 2, 2, 1}})
          == "shape: layer 2 shares layer 1, expected one with memory of its own, but that one shares layer 0");
    CHECK(violation({{1, 2, 2}, {1, 4, 2, 0}}) == "shape: layer 1 shares layer 0, expected the same heads and dims");
    CHECK(violation_of([] { static_cast<void>(CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2}[1]); })
          == "layer 1, expected 0 to 0");
    CHECK(violation_of([] {
              (void)detail::resolved({.layers = 3, .each_layer = {{1, 2, 2}}});
          })
          == "shape: 3 layers, expected 1, as many as are in each_layer");
    CHECK(violation_of([] { Cache<>{{.layers = 0}, {.capacity = 1}}; }) == "shape: no layers, expected at least 1");
}

TEST_CASE("invalid limits are violations") {
    const auto violation = [](CacheLimits limits) {
        return violation_of([&] { Cache<>{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 2}, limits}; });
    };
    CHECK(violation({.sequences = 0, .capacity = 1}) == "limits: 0 sequences, expected at least 1");
    CHECK(violation({.sequences = 1, .capacity = 0})
          == "limits: a capacity of 0 and 0 cells, expected one of them to be at least 1");
    CHECK(violation({.capacity = 1, .batch = -1}) == "limits: a batch of -1, expected 0 or more");
    CHECK(violation({.capacity = 1, .padding = 0}) == "limits: a padding of 0, expected 1 to 1073741824");
    CHECK(violation({.sequences = 4, .capacity = 1 << 30}) == "limits: 4294967296 cells, expected at most 2147483584");
}

TEST_CASE("a shift with frequencies for fewer or more layers than the cache has is a violation") {
    const auto make = [](std::size_t layers) {
        return violation_of([&] {
            Cache<StandardV<float>, FullCausal, RopeShift<>>{CacheShape{.layers = 3, .kv_heads = 1, .head_dim = 2},
                                                             {.capacity = 2},
                                                             {},
                                                             RopeShift<>::per_layer({layers, {1.0}})};
        });
    };
    CHECK(make(1) == "shift: frequencies for 1 layers, expected for all, or for each of the cache's 3");
    CHECK(make(3) == "none");
    CHECK(make(2) == "shift: frequencies for 2 layers, expected for all, or for each of the cache's 3");
    CHECK(make(4) == "shift: frequencies for 4 layers, expected for all, or for each of the cache's 3");
}

TEST_CASE("a shift that rotates more elements than a head has is a violation") {
    const auto make = [](int key_dim, int begin) {
        return violation_of([&] {
            Cache<StandardV<float>, FullCausal, RopeShift<>>{
                CacheShape{.layers = 1, .kv_heads = 1, .head_dim = key_dim, .value_dim = 1},
                {.capacity = 2},
                {},
                RopeShift<>{std::vector<double>(2, 1.0), begin}};
        });
    };
    CHECK(make(4, 0) == "none");
    CHECK(make(3, 0) == "shift: layer 0 has a key_dim of 3, expected at least 4, the elements that are rotated");
    CHECK(make(4, 1) == "shift: layer 0 has a key_dim of 4, expected at least 5, the elements that are rotated");
}

} // namespace test_shape
