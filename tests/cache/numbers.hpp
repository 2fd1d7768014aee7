// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Caches whose tokens are numbers: all elements of the key and the value of token x are x, in every layer.
namespace numbers {

struct Token {
    int sequence;
    int position;
    float x;
    int group = -1; ///< as in `Batch::groups`
};
using Numbers = std::vector<Token>;
using Values = std::vector<float>;
using Held = std::vector<std::pair<float, float>>; ///< value and key of each token, in ascending order

/// Numbers of one sequence at consecutive positions.
inline Numbers prompt(int sequence, int first, const Values& values) {
    Numbers tokens;
    for (const float x : values) tokens.push_back({sequence, first++, x});
    return tokens;
}

inline Numbers operator+(Numbers a, const Numbers& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

template <class Cache>
auto begin(Cache& cache, const Numbers& tokens) {
    std::vector<int> positions;
    std::vector<int> sequences;
    std::vector<int> groups;
    for (const Token& t : tokens) {
        positions.push_back(t.position);
        sequences.push_back(t.sequence);
        groups.push_back(t.group);
    }
    return cache.begin({positions, sequences, groups});
}

/// Puts the batch's rows in all layers that have memory of their own.
template <class Pass>
void put(Pass& pass, const cellar::CacheShape& shape, const Numbers& tokens) {
    const int layers = cellar::detail::resolved(shape).layers;
    for (int layer = 0; layer < layers; ++layer) {
        if (shape[layer].shares_layer >= 0) continue;
        std::vector<float> k;
        std::vector<float> v;
        for (const Token& t : tokens) {
            k.insert(k.end(), static_cast<std::size_t>(shape[layer].kv_heads * shape[layer].key_dim), t.x);
            v.insert(v.end(), static_cast<std::size_t>(shape[layer].kv_heads * shape[layer].value_dim), t.x);
        }
        pass.put(layer, k, v);
    }
}

/// Commits a pass, which must not be refused.
template <class Cache>
void feed(Cache& cache, const Numbers& tokens) {
    auto pass = begin(cache, tokens);
    REQUIRE(pass.has_value());
    put(*pass, cache.shape(), tokens);
    pass->commit();
}

/// The rows that a token of an open pass sees, in ascending order.
template <class L, class W, class S, class B, class Pass>
Held seen(const cellar::Cache<L, W, S, B>&, Pass& pass, int query, int layer = 0) {
    const auto [keys, values, mask] = pass.get(layer);
    Held found;
    for (int c = 0; c < pass.history().count; ++c) {
        if (mask(query, c) != 0) continue;
        found.emplace_back(static_cast<float>(values(c, 0, 0)), static_cast<float>(keys(c, 0, 0)));
    }
    std::sort(found.begin(), found.end());
    return found;
}

inline Values values_of(const Held& held) {
    Values values;
    for (const auto& [value, key] : held) values.push_back(value);
    return values;
}

/// The values that a token of an open pass sees, in ascending order.
template <class Cache, class Pass>
Values sees(const Cache& cache, Pass& pass, int query) {
    return values_of(seen(cache, pass, query));
}

/// The rows of all tokens of a sequence.
template <class Cache>
Held held(Cache& cache, int sequence, int layer = 0) {
    const auto all_cells = cache.reserve(1);
    const auto keys = all_cells.keys(layer);
    const auto values = all_cells.values(layer);
    Held found;
    cache.visit_cells(cellar::Sequence{sequence}, [&](cellar::Position, cellar::Cell cell, std::int32_t count) {
        for (int c = cell; c < cell + count; ++c)
            found.emplace_back(static_cast<float>(values(c, 0, 0)), static_cast<float>(keys(c, 0, 0)));
    });
    std::sort(found.begin(), found.end());
    return found;
}

template <class Cache>
Values values(Cache& cache, int sequence) {
    return values_of(held(cache, sequence));
}

/// Everything that can be observed of a cache, the keys of all cells included.
template <class Cache>
std::string portrait(Cache& cache) {
    std::string all = cellar::describe(cache);
    for (int s = 0; s < cache.limits().sequences; ++s)
        for (int p = 0; p < 40; ++p) all += cache.can_resume(cellar::Sequence{s}, cellar::Position{p}) ? 'y' : 'n';
    auto pass = cache.reserve(1);
    for (int layer = 0; layer < cache.shape().layers; ++layer)
        for (int c = 0; c < cache.cells(); ++c)
            all += ' ' + std::to_string(static_cast<float>(pass.keys(layer)(c, 0, 0)));
    return all;
}

/// A shift that adds the delta to every element of a key, so that shifted keys stay readable.
struct Adding {
    static constexpr bool possible = true;

    struct Factor {
        float added;
    };
    struct Rotation {
        CELLAR_FUNCTION int pairs() const { return 1; }
        CELLAR_FUNCTION int first(int) const { return 0; }
        CELLAR_FUNCTION int second(int) const { return 1; }
        CELLAR_FUNCTION void rotate(float& a, float& b, Factor factor) const {
            a += factor.added;
            b += factor.added;
        }
    };

    Rotation rotation(int) const { return {}; }
    Factor factor(int, int, std::int32_t delta) const { return {static_cast<float>(delta)}; }
};

template <class Window = cellar::FullCausal, class Layout = cellar::StandardV<float>>
using Cache = cellar::Cache<Layout, Window, Adding>;

inline const cellar::CacheShape small{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1};

} // namespace numbers
