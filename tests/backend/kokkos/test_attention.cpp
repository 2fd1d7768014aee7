// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention with Kokkos' memory and threads equals attention on the host.
#include <cellar/attention/attend.hpp>
#include <cellar/attention/kokkos_threads.hpp>
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace test_attention {

using namespace cellar;

namespace {

[[maybe_unused]] std::vector<float> wave(int n, int first) {
    std::vector<float> floats(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i)
        floats[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(first + 1.7 * i + 0.3 * i * i));
    return floats;
}

[[maybe_unused]] constexpr int kv_heads = 2, heads = 8, dim = 32;

template <class Cache, class Threads>
std::vector<float> attended(Cache& cache, const Threads& threads) {
    std::vector<float> all;
    for (const int n : {1500, 1, 40, 1}) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, cache.next(Sequence{0}), n}).value();
        pass.put(0, wave(n * kv_heads * dim, n), wave(n * kv_heads * dim, n + 1));
        if (n < 1000) {
            std::vector<float> out(static_cast<std::size_t>(n * heads * dim));
            attend(pass, 0, wave(n * heads * dim, n + 2), out, {}, threads);
            all.insert(all.end(), out.begin(), out.end());
        }
        pass.commit();
    }
    return all;
}

// A template, because on a device nothing of it may be compiled.
template <class Space>
void check() {
    if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible) {
        const CacheLimits limits{.capacity = 2000, .batch = 1500};
        const CacheShape shape{.layers = 1, .kv_heads = kv_heads, .head_dim = dim};
        Cache<StandardV<cellar::half>> on_calling_thread{shape, limits};
        Cache<StandardV<cellar::half>, FullCausal, DisabledShift, KokkosBackend<Space>> by_kokkos{shape, limits};
        CHECK(attended(by_kokkos, KokkosThreads<Space>{}) == attended(on_calling_thread, CallingThread{}));
    }
}

} // namespace

TEST_CASE("attend: Kokkos' memory and threads, the same results") {
    check<Kokkos::DefaultExecutionSpace>();
}

} // namespace test_attention
