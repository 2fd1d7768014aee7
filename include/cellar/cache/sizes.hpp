// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cache/cache_limits.hpp>
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

/// The value of `Cache::bytes` for a cache whose layers are all alike, without making the cache.
template <LayoutPolicy Layout, WindowPolicy Window = FullCausal>
constexpr std::int64_t cache_bytes(int layers, const LayerShape& shape, const CacheLimits& limits,
                                   const Window& window = Window{}) {
    return layers
           * layer_bytes<Layout>(shape, detail::cell_count(detail::in_whole_blocks<Layout>(limits),
                                                           detail::resolved_window(limits, window)));
}

} // namespace cellar
