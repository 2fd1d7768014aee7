// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cellar_test {

/// A host copy of a view's elements, in the order of its indices.
template <class Space, class T, int Rank>
std::vector<float> elements_of(const cellar::StridedView<const T, Rank>& view) {
    std::size_t reach = view.size() == 0 ? 0 : 1;
    for (int r = 0; r < Rank && reach > 0; ++r)
        reach += static_cast<std::size_t>((view.extent(r) - 1) * view.stride(r));
    const Kokkos::View<const T*, Space, Kokkos::MemoryUnmanaged> source{view.pointer, reach};
    const Kokkos::View<T*, Kokkos::HostSpace> copy{"copy", reach};
    Kokkos::deep_copy(copy, source);
    std::vector<float> elements;
    for (std::int64_t i = 0; i < view.size(); ++i) {
        std::int64_t rest = i;
        std::int64_t offset = 0;
        for (int r = Rank - 1; r >= 0; rest /= view.extent(r--)) offset += rest % view.extent(r) * view.stride(r);
        elements.push_back(static_cast<float>(copy(static_cast<std::size_t>(offset))));
    }
    return elements;
}

/// Runs a prompt and decode steps of two sequences, with a removal between them, on a device and on the host. Checks
/// that keys, values and masks are equal.
template <class Backend, class Layout>
void check_passes() {
    using namespace cellar;
    using Space = typename Backend::memory_space;
    using Window = SlidingWindow<30>;
    constexpr int heads = 3;
    constexpr int dim = 16;
    const CacheLimits limits{.sequences = 2, .capacity = 64, .batch = 40, .positions = Positions::any};
    Cache<Layout, Window, DisabledShift, HostBackend> host{CacheShape{.layers = 2, .kv_heads = heads, .head_dim = dim},
                                                           limits};
    Cache<Layout, Window, DisabledShift, Backend> device{CacheShape{.layers = 2, .kv_heads = heads, .head_dim = dim},
                                                         limits};
    std::mt19937 random{9};
    const auto pass = [&](const std::vector<Position>& positions, const std::vector<Sequence>& sequences) {
        auto a = host.begin({positions, sequences});
        auto b = device.begin({positions, sequences});
        REQUIRE(a);
        REQUIRE(b);
        const auto tokens = static_cast<std::int64_t>(positions.size());
        const Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace> rows{"rows", positions.size(), heads, dim};
        for (std::int64_t i = 0; i < tokens * heads * dim; ++i)
            rows.data()[i] = std::uniform_real_distribution<float>{-2.0F, 2.0F}(random);
        const Kokkos::View<float***, Kokkos::LayoutRight, Space> device_rows{"rows", positions.size(), heads, dim};
        Kokkos::deep_copy(device_rows, rows);
        for (int layer = 0; layer < 2; ++layer) {
            a->put(layer, rows, rows);
            b->put(layer, device_rows, device_rows);
            device.fence();
            CHECK(elements_of<Kokkos::HostSpace>(a->keys(layer)) == elements_of<Space>(b->keys(layer)));
            CHECK(elements_of<Kokkos::HostSpace>(a->values(layer)) == elements_of<Space>(b->values(layer)));
        }
        const auto mask = b->template mask<cellar::half>();
        device.fence();
        CHECK(elements_of<Kokkos::HostSpace>(a->template mask<cellar::half>()) == elements_of<Space>(mask));
        a->commit();
        b->commit();
    };
    std::vector<Position> prompt;
    for (int p = 0; p < 40; ++p) prompt.push_back(cellar::Position{p});
    pass(prompt, std::vector<Sequence>(40));
    REQUIRE(device.copy_prefix(Sequence{0}, Sequence{1}, Position{40}));
    REQUIRE(host.copy_prefix(Sequence{0}, Sequence{1}, Position{40}));
    for (int p = 40; p < 50; ++p) pass({Position{p}, Position{p}}, {Sequence{0}, Sequence{1}});
    REQUIRE(device.remove(Sequence{0}, Position{45}, to_end));
    REQUIRE(host.remove(Sequence{0}, Position{45}, to_end));
    device.defragment();
    host.defragment();
    for (int p = 45; p < 48; ++p) pass({Position{p}, Position{p + 5}}, {Sequence{0}, Sequence{1}});
}

} // namespace cellar_test
