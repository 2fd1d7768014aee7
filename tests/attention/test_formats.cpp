// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "formats.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

// Attention over formats that are decoded: that over a cache of floats with the decoded values.

namespace test_formats {

using namespace cellar;
using cellar_test::BlocksOf32;
using cellar_test::ScaledHeads;

namespace {

constexpr int tokens = 150; // more than a tile
constexpr int query_heads = 4;

std::vector<float> random_rows(std::mt19937& random, std::size_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(n);
    for (float& x : rows) x = normal(random);
    return rows;
}

/// Two passes, of which the second sees the first.
template <class Layout>
std::vector<float> results(const LayerShape& shape, const std::vector<float>& q, const std::vector<float>& k,
                           const std::vector<float>& v, int value_dim) {
    Cache<Layout> cache{CacheShape{.each_layer = {shape}}, {.capacity = tokens + 1, .batch = tokens}};
    std::vector<float> out;
    const auto row = [&](int first, const std::vector<float>& rows) {
        return rows.data() + static_cast<std::size_t>(first) * (rows.size() / (tokens + 1));
    };
    for (const auto& [first, n] : {std::pair{0, tokens}, std::pair{tokens, 1}}) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{first}, n}).value();
        const auto given = [&](const std::vector<float>& rows) {
            return std::span{row(first, rows), rows.size() / (tokens + 1) * static_cast<std::size_t>(n)};
        };
        pass.put(0, given(k), given(v));
        std::vector<float> some(static_cast<std::size_t>(n * query_heads * value_dim));
        attend(pass, 0, contiguous_view(row(first, q), n, query_heads, shape.key_dim),
               contiguous_view(some.data(), n, query_heads, value_dim));
        out.insert(out.end(), some.begin(), some.end());
        pass.commit();
    }
    return out;
}

template <class Layout>
bool agrees_with_floats(const LayerShape& shape, int value_dim) {
    std::mt19937 random{1};
    const auto rows = [&](int heads, int dim) {
        return random_rows(random, static_cast<std::size_t>((tokens + 1) * heads * dim));
    };
    const std::vector<float> q = rows(query_heads, shape.key_dim);
    const std::vector<float> k = rows(shape.kv_heads, shape.key_dim);
    const std::vector<float> v = rows(shape.kv_heads, shape.value_dim);
    const std::vector<float> found = results<Layout>(shape, q, k, v, value_dim);
    const std::vector<float> expected =
        results<StandardV<float>>(shape, q, cellar_test::stored<typename Layout::key_format>(k, shape.key_dim),
                                  cellar_test::stored<typename Layout::value_format>(v, shape.value_dim), value_dim);
    float largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
    return found.size() == expected.size() && largest < 1e-5F;
}

} // namespace

TEST_CASE("attention over formats equals that over the decoded values") {
    CHECK(agrees_with_floats<StandardV<BlocksOf32>>({2, 64, 32}, 32));
    CHECK(agrees_with_floats<StandardV<ScaledHeads, BlocksOf32>>({1, 64, 96}, 96));
    CHECK(agrees_with_floats<Blocked<ScaledHeads, 16>>({4, 40, 24}, 24));
    CHECK(agrees_with_floats<PermutedV<ScaledHeads, half>>({2, 32, 32}, 32));
}

TEST_CASE("values that are the beginning of encoded keys are decoded, too") {
    CHECK(agrees_with_floats<StandardV<BlocksOf32>>({1, 96, 0}, 64));
}

} // namespace test_formats
