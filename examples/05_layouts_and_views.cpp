// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Layouts and element types of keys and values, and rows with strides.
#include "expect.hpp"
#include <cellar/cellar.hpp>

#include <cstdint>
#include <vector>

namespace {

constexpr int heads = 2;
constexpr int dim = 4;
constexpr int tokens = 3;
const cellar::BatchBuilder batch{cellar::Sequence{0}, cellar::Position{0}, tokens};
const cellar::CacheLimits limits{.capacity = 8, .batch = tokens};

} // namespace

int main() {
    std::vector<float> k(tokens * heads * dim);
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i) / 4;

    // [permuted]
    cellar::Cache<cellar::StandardV<float>> standard{{.layers = 1, .kv_heads = heads, .head_dim = dim}, limits};
    cellar::Cache<cellar::PermutedV<cellar::half>> permuted{{.layers = 1, .kv_heads = heads, .head_dim = dim}, limits};
    auto a = standard.begin(batch);
    auto b = permuted.begin(batch);
    expect(a && b);
    a->put(0, k, k);
    b->put(0, k, k); // rounds floats to the element type of the cache

    const auto x = a->values(0); // [history, heads, dim] with every layout
    const auto y = b->values(0);
    for (int token = 0; token < tokens; ++token) expect(x(token, 1, 2) == static_cast<float>(y(token, 1, 2)));
    expect(x.stride(2) == 1); // StandardV: the elements of a row are adjacent
    expect(y.stride(0) == 1); // PermutedV: the cells are adjacent
    expect(standard.bytes() == 2 * permuted.bytes());
    a->commit();
    b->commit();
    // [/permuted]

    // [strides]
    // Many models compute queries, keys and values as one row. `put` accepts views with any strides.
    std::vector<float> fused(tokens * 3 * heads * dim); // [tokens, queries keys values, heads, dim]
    for (std::size_t i = 0; i < fused.size(); ++i) fused[i] = static_cast<float>(i);
    const std::int64_t row = 3 * heads * dim;
    const cellar::StridedView<const float, 3> keys{&fused[heads * dim], {tokens, heads, dim}, {row, dim, 1}};
    const cellar::StridedView<const float, 3> values{&fused[2 * heads * dim], {tokens, heads, dim}, {row, dim, 1}};
    cellar::Cache<> memory{{.layers = 1, .kv_heads = heads, .head_dim = dim}, limits};
    auto pass = memory.begin(batch);
    pass->put(0, keys, values);
    expect(pass->keys(0)(2, 1, 3) == fused[2 * row + heads * dim + dim + 3]);
    pass->commit();
    // [/strides]
}
