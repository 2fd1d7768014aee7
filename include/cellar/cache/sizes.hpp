// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/window.hpp>

#include <cstdint>

namespace cellar {

namespace detail {

/// All planes of keys or values.
template <class Mapping, class Format>
constexpr std::int64_t bytes_of_rows(std::int64_t cells, int heads, int dim) {
    const Mapping units{cells, heads, dim / values_per_unit<Format>};
    std::int64_t bytes = units.required_size() * std::int64_t{sizeof(unit_of<Format>)};
    if constexpr (has_scale_plane<Format>) {
        const Mapping scales{cells, heads, scales_in<Format>(dim)};
        bytes += scales.required_size() * std::int64_t{sizeof(scale_of<Format>)};
    }
    return bytes;
}

} // namespace detail

/// Bytes of the keys and values of one layer in `cells` cells.
template <LayoutPolicy Layout>
constexpr std::int64_t layer_bytes(const LayerShape& shape, std::int64_t cells) {
    return detail::bytes_of_rows<typename Layout::key_mapping, typename Layout::key_format>(cells, shape.kv_heads,
                                                                                            shape.key_dim)
           + detail::bytes_of_rows<typename Layout::value_mapping, typename Layout::value_format>(cells, shape.kv_heads,
                                                                                                  shape.value_dim);
}

namespace detail {

/// The cells of a cache with these limits.
template <LayoutPolicy Layout, WindowPolicy Window = FullCausal>
constexpr std::int64_t cells_for(const CacheLimits& limits, const Window& window = Window{}) {
    return cell_count(resolved_limits<Layout>(limits), resolved_window(limits, window));
}

} // namespace detail

/// The value of `Cache::bytes`, without making the cache.
template <LayoutPolicy Layout, WindowPolicy Window = FullCausal>
std::int64_t cache_bytes(const CacheShape& shape, const CacheLimits& limits, const Window& window = Window{}) {
    const std::int64_t cells = detail::cells_for<Layout>(limits, window);
    const CacheShape all = detail::resolved(shape);
    std::int64_t bytes = 0;
    for (const LayerShape& layer : all.each_layer)
        if (layer.shares_layer < 0) bytes += layer_bytes<Layout>(layer, cells);
    return bytes;
}

} // namespace cellar
