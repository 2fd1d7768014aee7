// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "heads.hpp"
#include <cellar/cellar.hpp>
#include <cellar/memory/format_conversion.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

// Keys and values that caches of different formats hand over to each other, in files or in messages.
namespace cellar_test {

inline constexpr int key_dim = 128;
inline constexpr int value_dim = 64;
inline const cellar::CacheShape converted_shape{
    .layers = 2, .kv_heads = 2, .head_dim = key_dim, .value_dim = value_dim};

/// Keys and values of both layers.
struct Contents {
    std::array<std::vector<float>, 2> keys;
    std::array<std::vector<float>, 2> values;

    std::int32_t tokens() const { return static_cast<std::int32_t>(keys[0].size() / (2 * key_dim)); }
};

inline Contents random_contents(int tokens, std::mt19937& random) {
    Contents contents;
    std::normal_distribution<float> normal;
    for (std::size_t layer = 0; layer < 2; ++layer) {
        for (int i = 0; i < tokens * 2 * key_dim; ++i)
            contents.keys[layer].push_back(normal(random) * (i % 40 == 7 ? 20.0F : 1.0F));
        for (int i = 0; i < tokens * 2 * value_dim; ++i) contents.values[layer].push_back(normal(random));
    }
    return contents;
}

/// Puts them in sequence 0; calls after_put(pass, layer).
template <class Memory, class AfterPut>
void fill(Memory& cache, const Contents& contents, AfterPut after_put) {
    if (contents.tokens() == 0) return;
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, contents.tokens()}).value();
    for (const int layer : {0, 1}) {
        const auto at = static_cast<std::size_t>(layer);
        pass.put(layer, contents.keys[at], contents.values[at]);
        after_put(pass, layer);
    }
    pass.commit();
}
template <class Memory>
void fill(Memory& cache, const Contents& contents) {
    fill(cache, contents, [](auto&, int) {});
}

/// Each head, encoded and decoded.
template <class Format>
void round_heads(std::vector<float>& rows, int dim) {
    const auto step = static_cast<std::size_t>(dim);
    for (std::size_t i = 0; i < rows.size(); i += step) {
        const std::vector<float> head = StoredHead<Format>{std::span{rows}.subspan(i, step)}.decoded();
        std::copy(head.begin(), head.end(), rows.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

/// The formats of a layout, whatever it is.
struct Formats {
    std::string key;
    std::string value;
    std::function<void(std::vector<float>&)> round_keys;
    std::function<void(std::vector<float>&)> round_values;
    cellar::StoredAs as;
};

template <class Layout>
Formats formats_of() {
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;
    return {.key = cellar::detail::stored_units_of<Key>().name,
            .value = cellar::detail::stored_units_of<Value>().name,
            .round_keys = [](std::vector<float>& rows) { round_heads<Key>(rows, key_dim); },
            .round_values = [](std::vector<float>& rows) { round_heads<Value>(rows, value_dim); },
            .as = cellar::stored_as<Key, Value>};
}

/// What is stored of contents that were in one format, and are converted to another one. Nothing happens to those that
/// have it already.
inline Contents converted(Contents contents, const Formats& from, const Formats& to) {
    for (auto& rows : contents.keys)
        if (from.key != to.key) from.round_keys(rows);
    for (auto& rows : contents.values)
        if (from.value != to.value) from.round_values(rows);
    return contents;
}

} // namespace cellar_test
