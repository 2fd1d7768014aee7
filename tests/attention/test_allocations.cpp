// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "allocation_count.hpp"
#include "attended.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace test_attention_allocations {

using namespace cellar;

namespace {

constexpr int sequences = 4, kv_heads = 2, heads = 8, dim = 32;
const CacheShape shape{.layers = 1, .kv_heads = kv_heads, .head_dim = dim};
const CacheLimits limits{.sequences = sequences, .capacity = 2000, .batch = 800};

/// In 499 decode steps, after the first one.
template <class Cache>
std::int64_t allocations_of_steps(Cache cache) {
    BatchBuilder decode;
    const attention_test::Floats rows(std::size_t{800} * kv_heads * dim, 0.5F);
    attention_test::Floats q(std::size_t{sequences} * heads * dim, 0.25F), out(q.size());
    for (int s = 0; s < sequences; ++s) {
        auto pass = cache.begin(BatchBuilder{Sequence{s}, Position{0}, 800}).value();
        pass.put(0, rows, rows);
        pass.commit();
    }
    const std::span<const float> step{rows.data(), std::size_t{sequences} * kv_heads * dim};
    allocations = 0;
    for (int i = 0; i < 500; ++i) {
        decode.clear();
        for (int s = 0; s < sequences; ++s) decode.add(Sequence{s}, Position{800 + i});
        counting = i > 0;
        auto pass = cache.begin(decode).value();
        pass.put(0, step, step);
        attend(pass, 0, q, out, {.soft_cap = 30});
        pass.commit();
        counting = false;
    }
    CHECK(out.front() == doctest::Approx(0.5));
    return allocations;
}

} // namespace

TEST_CASE("allocations: attention makes none once it has been called for as many tokens that see as much") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    using Windowed = Cache<StandardV<half>, SlidingWindow<700>>;
    CHECK(allocations_of_steps(Windowed{shape, limits}) == 0);
    using OnRead = Cache<StandardV<half>, SlidingWindow<700>, RotateOnRead<>>;
    CHECK(allocations_of_steps(OnRead{shape, limits, {}, RopeShift<>{rope_frequencies(dim)}}) == 0);
}

} // namespace test_attention_allocations
