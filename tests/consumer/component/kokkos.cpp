// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>
#include <cellar/interop/kokkos_view.hpp>

// A cache on Kokkos takes rows from a View, and its keys become one.
int main(int argc, char** argv) {
    const Kokkos::ScopeGuard kokkos{argc, argv};
    // [kokkos]
    using Space = Kokkos::DefaultHostExecutionSpace;
    using Backend = cellar::KokkosBackend<Space>;
    cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::DisabledShift, Backend> cache{
        cellar::CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 1, .capacity = 8, .batch = 1}};
    const cellar::Position position[] = {cellar::Position{0}};
    const cellar::Sequence sequence[] = {cellar::Sequence{0}};
    auto pass = cache.begin({position, sequence});
    if (!pass) return 1;
    const Kokkos::View<float***, Space> rows{"rows", 1, 2, 4};
    Kokkos::deep_copy(rows, 3.0F);
    pass->put(0, rows, rows);
    cache.fence();
    const auto keys = cellar::kokkos_view<Kokkos::HostSpace>(pass->keys(0));
    // [/kokkos]
    return keys(0, 1, 3) == 3.0F ? 0 : 1;
}
