// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/book/limits.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/store/layer_shape.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstdint>

namespace cellar {

/// Bytes of keys and values of one layer with memory of its own, in so many cells.
template <layout_policy Layout>
constexpr std::int64_t layer_bytes(const LayerShape& shape, std::int64_t cells) {
    const typename Layout::key_mapping keys{cells, shape.kv_heads, shape.key_dim};
    const typename Layout::value_mapping values{cells, shape.kv_heads, shape.value_dim};
    return keys.required_size() * std::int64_t{sizeof(typename Layout::key_element)}
           + values.required_size() * std::int64_t{sizeof(typename Layout::value_element)};
}

/// What `Cache::bytes` would say of a cache whose layers are all alike, without making it.
template <layout_policy Layout, window_policy Window = FullCausal>
constexpr std::int64_t cache_bytes(int layers, const LayerShape& shape, const Limits& limits,
                                   const Window& window = Window{}) {
    const Window fitted = window.fitted(limits.sequences, limits.capacity);
    return layers * layer_bytes<Layout>(shape, cells_for(limits, fitted));
}

} // namespace cellar
