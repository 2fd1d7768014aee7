// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>
#include <cellar/interop/kokkos_view.hpp>

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

namespace test_views {

using namespace cellar;

namespace {

using Backend = KokkosBackend<Kokkos::DefaultHostExecutionSpace>;
using TestCache = Cache<PermutedV<float>, FullCausal, DisabledShift, Backend>;

constexpr int tokens = 3;
constexpr int heads = 2;
constexpr int dim = 4;

float value_of(int token, int head, int d) {
    return static_cast<float>(100 * token + 10 * head + d);
}

template <class View>
View filled() {
    View view{"rows", tokens, heads, dim};
    for (int t = 0; t < tokens; ++t)
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d) view(t, h, d) = value_of(t, h, d);
    return view;
}

} // namespace

TEST_CASE_TEMPLATE("views: rows may have any layout of Kokkos", Layout, Kokkos::LayoutRight, Kokkos::LayoutLeft) {
    const auto rows = filled<Kokkos::View<float***, Layout, Kokkos::HostSpace>>();
    TestCache cache{CacheShape{.layers = 1, .kv_heads = heads, .head_dim = dim},
                    {.sequences = 1, .capacity = 8, .batch = tokens}};
    const Position positions[] = {Position{0}, Position{1}, Position{2}};
    const Sequence sequences[] = {Sequence{0}, Sequence{0}, Sequence{0}};
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    pass->put(0, rows, Kokkos::View<const float***, Layout, Kokkos::HostSpace>{rows});
    cache.fence();
    const auto keys = kokkos_view<Kokkos::HostSpace>(pass->keys(0));
    const auto values = kokkos_view<Kokkos::HostSpace>(pass->values(0));
    const auto mask = kokkos_view<Kokkos::HostSpace>(pass->mask<bool>());
    static_assert(decltype(keys)::rank() == 3 && decltype(mask)::rank() == 2);
    REQUIRE(keys.extent(0) == tokens);
    REQUIRE(values.extent(0) == tokens);
    for (int t = 0; t < tokens; ++t) {
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d) {
                CHECK(keys(t, h, d) == value_of(t, h, d));
                CHECK(values(t, h, d) == value_of(t, h, d));
            }
        for (int c = 0; c < tokens; ++c) CHECK(mask(t, c) == (c <= t));
    }
    pass->commit();
}

TEST_CASE("views: the message names a wrong extent") {
    TestCache cache{CacheShape{.layers = 1, .kv_heads = heads, .head_dim = dim},
                    {.sequences = 1, .capacity = 8, .batch = tokens}};
    const Position positions[] = {Position{0}};
    const Sequence sequences[] = {Sequence{0}};
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    const auto rows = filled<Kokkos::View<float***, Kokkos::HostSpace>>();
    CHECK(violation_of([&] { pass->put(0, rows, rows); })
          == "put: the keys of layer 0 are [3, 2, 4], expected [1 tokens, 2 heads, 4]");
}

TEST_CASE("views: buffers and device lists cannot be copied") {
    using Buffer = Backend::Buffer<float>;
    static_assert(!std::is_copy_constructible_v<Buffer>);
    static_assert(
        !std::is_copy_constructible_v<detail::KokkosDeviceWork<Kokkos::DefaultHostExecutionSpace, Kokkos::HostSpace>>);
    Buffer buffer = Backend{}.allocate<float>(3);
    const Buffer moved = std::move(buffer);
    CHECK(moved.size() == 3);
    CHECK(buffer.size() == 0);
}

} // namespace test_views
