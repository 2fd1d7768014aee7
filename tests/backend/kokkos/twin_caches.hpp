// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/kokkos/passes.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace cellar_test {

/// A cache on the host and one on a device, which do the same. No fence comes between operations.
template <class Backend, class Layout>
class TwinCaches {
    template <class B>
    using CacheOn = cellar::Cache<Layout, cellar::FullCausal, cellar::DisabledShift, B>;
    using Space = typename Backend::memory_space;
    using Rows = Kokkos::View<float***, Kokkos::LayoutRight, Space>;
    using HostRows = Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace>;

public:
    using Host = CacheOn<cellar::HostBackend>;
    using Device = CacheOn<Backend>;

    TwinCaches(int layers, const cellar::CacheLimits& limits)
        : host{cellar::CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits},
          device{cellar::CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits} {}

    /// Runs a pass over `on_host` and one over `on_device`: the caches, or what begins passes of them. The keys of the
    /// first layer are `value(token, element)`, with the token's index in the batch. Those of each next layer are twice
    /// as large, and values are the keys with the other sign.
    template <class OnHost, class OnDevice, class Value>
    void run(OnHost& on_host, OnDevice& on_device, const cellar::BatchBuilder& batch, Value value) {
        auto a = on_host.begin(batch).value();
        auto b = on_device.begin(batch).value();
        const auto tokens = static_cast<std::size_t>(batch.size());
        const auto layers = static_cast<std::size_t>(host.layers());
        const HostRows rows{"rows", 2 * layers * tokens, heads, dim};
        constexpr std::size_t elements{heads * dim};
        for (std::size_t i = 0; i < tokens * elements; ++i) {
            auto x = static_cast<float>(value(i / elements, static_cast<int>(i % elements)));
            for (std::size_t part = 0; part < 2 * layers; ++part, x *= part % 2 == 0 ? -2.0F : -1.0F)
                rows.data()[part * tokens * elements + i] = x;
        }
        const Rows device_rows{"rows", 2 * layers * tokens, heads, dim};
        Kokkos::deep_copy(device_rows, rows);
        in_use_.push_back(device_rows);
        const auto part = [&](const auto& all, std::size_t n) {
            return Kokkos::subview(all, std::pair{n * tokens, (n + 1) * tokens}, Kokkos::ALL, Kokkos::ALL);
        };
        for (std::size_t layer = 0; layer < layers; ++layer) {
            const auto index = static_cast<int>(layer);
            a.put(index, part(rows, 2 * layer), part(rows, 2 * layer + 1));
            b.put(index, part(device_rows, 2 * layer), part(device_rows, 2 * layer + 1));
        }
        a.commit();
        b.commit();
    }

    /// Compares all cells, used or not.
    void compare() {
        device.fence();
        in_use_.clear();
        const auto a = host.reserve(1);
        const auto b = device.reserve(1);
        for (int layer = 0; layer < host.layers(); ++layer) {
            CHECK(elements_of<Kokkos::HostSpace>(a.keys(layer)) == elements_of<Space>(b.keys(layer)));
            CHECK(elements_of<Kokkos::HostSpace>(a.values(layer)) == elements_of<Space>(b.values(layer)));
        }
    }

    static constexpr int heads = 2;
    static constexpr int dim = 16;
    Host host;
    Device device;

private:
    std::vector<Rows> in_use_; ///< until a fence
};

} // namespace cellar_test
