// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/storage_format.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>

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

} // namespace cellar
