// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>

#include <cstdint>
#include <optional>

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

/// The most cells, up to 2^30, with which `bytes_of(cells)` is at most `most`; 0 if one is too much.
template <class BytesOf>
constexpr std::int32_t most_cells(std::int64_t most, BytesOf bytes_of) {
    std::int32_t cells = 0;
    for (std::int32_t step = 1 << 30; step > 0; step /= 2)
        if (step <= (1 << 30) - cells && bytes_of(cells + step) <= most) cells += step;
    return cells;
}

} // namespace detail

/// The inverse of `bytes_for`: the same limits with as many `cells`, whatever they were, as fit into `most` bytes;
/// never more than 2^30. `bytes_of(limits)` says what a memory with these limits takes, as a `MemoryBytes`: a `Cache`,
/// a hybrid of it and others, a memory with its prefix tree. More cells must never take less. None if not even one cell
/// fits. Calls `bytes_of` 31 times, and allocates nothing.
template <class BytesOf>
constexpr std::optional<CacheLimits> largest_limits(const CacheLimits& limits, std::int64_t most, BytesOf bytes_of) {
    CacheLimits found = limits;
    const auto with = [&](std::int32_t cells) -> const CacheLimits& {
        found.cells = cells;
        return found;
    };
    const std::int32_t cells =
        detail::most_cells(most, [&](std::int32_t some) { return MemoryBytes{bytes_of(with(some))}.total(); });
    if (cells == 0) return std::nullopt;
    return with(cells);
}

} // namespace cellar
