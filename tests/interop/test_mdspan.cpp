// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <cellar/cellar.hpp>
#include <cellar/interop/mdspan.hpp>

#include <doctest/doctest.h>

#include <mdspan>
#include <type_traits>
#include <vector>

namespace test_mdspan {

using namespace cellar;

TEST_CASE("keys, values and mask become mdspans, and put takes mdspans") {
    Cache<PermutedV<float>> cache{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 3}, {.capacity = 8, .batch = 4}};
    std::vector<float> rows(4 * 2 * 3);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    const std::vector<Position> positions{Position{0}, Position{1}, Position{2}, Position{3}};
    const std::vector<Sequence> sequences(4);
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    const std::mdspan k{rows.data(), 4, 2, 3};
    pass->put(0, k, k);

    const auto keys = to_mdspan(pass->keys(0));
    const auto values = to_mdspan(pass->values(0));
    const auto mask = to_mdspan(pass->mask<bool>());
    static_assert(std::is_same_v<decltype(keys)::element_type, const float>);
    static_assert(keys.rank() == 3 && mask.rank() == 2);
    REQUIRE(keys.extent(0) == 4);
    REQUIRE(keys.extent(1) == 2);
    REQUIRE(keys.extent(2) == 3);
    CHECK(values.stride(0) == 1);
    CHECK(values.stride(2) == cache.cells());
    for (int t = 0; t < 4; ++t) {
        for (int h = 0; h < 2; ++h)
            for (int d = 0; d < 3; ++d) {
                CHECK(keys[t, h, d] == k[t, h, d]);
                CHECK(values[t, h, d] == k[t, h, d]);
            }
        for (int c = 0; c < 4; ++c) CHECK(mask[t, c] == (c <= t));
    }
    CHECK(&keys[0, 0, 0] == pass->keys(0).pointer);
    pass->commit();
}

} // namespace test_mdspan
