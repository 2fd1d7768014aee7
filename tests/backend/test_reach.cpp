// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/mask_writer.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/backend/offloaded_memory.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <vector>

// Whether the host reaches a backend's memory, and whether the backend writes masks, are two questions.

namespace test_reach {

using namespace cellar;

namespace {

/// Shares its memory with the host, and writes masks.
struct Unified : cellar_test::MaskWriter {
    static constexpr bool host_reaches = true;
};

/// Has memory of its own, and writes no masks.
struct Apart : HostBackend {
    static constexpr bool host_reaches = false;
};

template <class Backend>
bool is_staged(OffloadTo to) {
    Backend backend;
    return detail::OffloadedMemory<float, Backend>{backend, 4, to}.is_staged();
}

template <class Backend>
bool is_on_host(OffloadTo to) {
    Backend backend;
    return detail::OffloadedMemory<float, Backend>{backend, 4, to}.is_on_host();
}

} // namespace

TEST_CASE("memory on the host is staged for a backend that does not reach it, whoever writes masks") {
    CHECK_FALSE(is_staged<Unified>(OffloadTo::host));
    CHECK_FALSE(is_staged<Unified>(OffloadTo::backend));
    CHECK(is_staged<Apart>(OffloadTo::host));
    CHECK_FALSE(is_staged<Apart>(OffloadTo::backend));
    CHECK(is_on_host<Unified>(OffloadTo::backend));
    CHECK(is_on_host<Apart>(OffloadTo::host));
    CHECK_FALSE(is_on_host<Apart>(OffloadTo::backend));
}

TEST_CASE("the host attends over memory that it shares with a backend that writes masks") {
    Cache<StandardV<float>, FullCausal, DisabledShift, Unified> cache{
        CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 4, .batch = 2}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    pass.put(0, std::vector{1.0F}, std::vector{3.0F});
    std::vector<float> out(1);
    attend(pass, 0, std::vector{1.0F}, out);
    CHECK(out[0] == 3.0F);
    CHECK(pass.mask()(0, 0) == 0.0F);
    CHECK(cache.backend().masks == 1);
    pass.commit();
}

TEST_CASE("a snapshot of a backend that does not reach the host is offloaded and in through memory of the backend") {
    Cache<StandardV<float>, FullCausal, DisabledShift, Apart> cache{
        CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 4, .batch = 2}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    pass.put(0, std::vector{1.0F, 2.0F}, std::vector{3.0F, 4.0F});
    pass.commit();
    auto snapshot = cache.snapshot(Sequence{0}).value();
    cache.offload(snapshot);
    REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(cache.restore(Sequence{0}, snapshot));
    auto next = cache.begin(BatchBuilder{Sequence{0}, Position{2}, 1}).value();
    next.put(0, std::vector{5.0F}, std::vector{6.0F});
    std::vector<float> seen;
    for (const CellRange run : next.visible(0))
        for (std::int32_t i = 0; i < run.count; ++i)
            seen.push_back(next.keys(0)(run.first + i - next.history().first, 0, 0));
    CHECK(seen == std::vector{1.0F, 2.0F, 5.0F});
    next.commit();
}

} // namespace test_reach
