// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "allocation_count.hpp"
#include "attended.hpp"
#include "skip.hpp"
#include <cellar/attention/attend_residual.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>

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

/// In 499 decode steps, after the first one. `run(batch, rows, q, out)`: a pass, with attention if `q` is not empty.
template <class Run>
std::int64_t allocations_of_steps(Run run) {
    BatchBuilder decode;
    const attention_test::Floats rows(std::size_t{800} * kv_heads * dim, 0.5F);
    attention_test::Floats q(std::size_t{sequences} * heads * dim, 0.25F), out(q.size());
    for (int s = 0; s < sequences; ++s)
        run(BatchBuilder{Sequence{s}, Position{0}, 800}, rows, std::span<const float>{}, out);
    const std::span<const float> step{rows.data(), std::size_t{sequences} * kv_heads * dim};
    allocations = 0;
    for (int i = 0; i < 500; ++i) {
        decode.clear();
        for (int s = 0; s < sequences; ++s) decode.add(Sequence{s}, Position{800 + i});
        counting = i > 0;
        run(decode, step, q, out);
        counting = false;
    }
    CHECK(out.front() == doctest::Approx(0.5).epsilon(1e-3));
    return allocations;
}

template <class Cache>
std::int64_t allocations_of(Cache cache) {
    return allocations_of_steps(
        [&](const Batch& batch, std::span<const float> rows, std::span<const float> queries, std::span<float> results) {
            auto pass = cache.begin(batch).value();
            pass.put(0, rows, rows);
            if (!queries.empty()) attend(pass, 0, queries, results, {.soft_cap = 30});
            pass.commit();
        });
}

} // namespace

TEST_CASE("allocations: attention makes none once it has been called for as many tokens that see as much") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    using Windowed = Cache<StandardV<half>, SlidingWindow<700>>;
    CHECK(allocations_of(Windowed{shape, limits}) == 0);
    using OnRead = Cache<StandardV<half>, SlidingWindow<700>, RotateOnRead<>>;
    CHECK(allocations_of(OnRead{shape, limits, {}, RopeShift<>{rope_frequencies(dim)}}) == 0);
}

TEST_CASE("allocations: attention with a residual makes none either") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    using Older = Cache<StandardV<q8_0>, SlidingWindow<700>>;
    using Newer = Cache<StandardV<half>, SlidingWindow<100>>;
    Hybrid<WithResidual, Older, Newer> memory{1, Older{shape, limits}, Newer{shape, limits}};
    const auto run = [&](const Batch& batch, std::span<const float> rows, std::span<const float> queries,
                         std::span<float> results) {
        auto pass = memory.begin(batch).value();
        pass.put(0, rows, rows);
        if (!queries.empty()) attend(pass, 0, queries, results);
        pass.commit();
    };
    CHECK(allocations_of_steps(run) == 0);
}

} // namespace test_attention_allocations
