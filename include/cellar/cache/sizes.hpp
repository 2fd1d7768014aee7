// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

/// Bytes of the keys and values of one layer in `cells` cells.
template <LayoutPolicy Layout>
constexpr std::int64_t layer_bytes(const LayerShape& shape, std::int64_t cells) {
    const typename Layout::key_mapping keys{cells, shape.kv_heads, shape.key_dim};
    const typename Layout::value_mapping values{cells, shape.kv_heads, shape.value_dim};
    return keys.required_size() * std::int64_t{sizeof(typename Layout::key_element)}
           + values.required_size() * std::int64_t{sizeof(typename Layout::value_element)};
}

namespace detail {

/// The cells of a cache with these limits.
template <LayoutPolicy Layout, WindowPolicy Window = FullCausal>
constexpr std::int64_t cells_for(const CacheLimits& limits, const Window& window = Window{}) {
    return cell_count(in_whole_blocks<Layout>(limits), resolved_window(limits, window));
}

} // namespace detail

/// The value of `Cache::bytes`, without making the cache.
template <LayoutPolicy Layout, WindowPolicy Window = FullCausal>
std::int64_t cache_bytes(const CacheShape& shape, const CacheLimits& limits, const Window& window = Window{}) {
    const std::int64_t cells = detail::cells_for<Layout>(limits, window);
    std::int64_t bytes = 0;
    for (int layer = 0; layer < shape.layers(); ++layer)
        if (shape[layer].shares_layer < 0) bytes += layer_bytes<Layout>(shape[layer], cells);
    return bytes;
}

} // namespace cellar
