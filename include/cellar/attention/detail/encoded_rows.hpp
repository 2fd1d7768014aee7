// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile.hpp>
#include <cellar/backend/host/encoded.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// Rows in a format that decodes a head at a time.
template <class Store>
concept encoded_store = requires {
    typename Store::Format;
}
&&!Element<typename Store::Format>;

/// Decoded rows have no place in memory where a kernel could read them.
struct NoPlace {
    static constexpr Segment segment = Segment::element;
    static constexpr std::int32_t segment_cells = 1;

    int heads() const { return count; }

    int count;
};

/// The keys or the values of a layer in such a format; in place of `StoredRows`. Every row is decoded to floats.
template <class Store>
struct EncodedRows {
    using Mapping = NoPlace;
    using element_type = float;

    Mapping mapping;
    const Store* store;
    std::int32_t dim;           ///< the elements of a row that are read, from the first one on
    bool exact_queries = false; ///< see `AttentionOptions`
};

/// See the one for `StoredRows`.
template <class Store>
void read_row(const EncodedRows<Store>& source, Cell cell, int head, float* to) {
    using Format = typename Store::Format;
    const auto decode = [&](float* values) {
        const std::span all{values, static_cast<std::size_t>(source.store->dim())};
        const auto units = read_units_at(source.store->plane(), cell, head);
        if constexpr (has_scale_plane<Format>) {
            Format::decode(units, read_units_at(source.store->scales().plane(), cell, head), all);
        } else {
            Format::decode(units, all);
        }
    };
    if (source.dim == source.store->dim()) {
        decode(to);
    } else {
        float whole[max_encoded_dim];
        decode(whole);
        std::copy_n(whole, source.dim, to);
    }
    std::fill(to + source.dim, to + padded_dim(source.dim), 0.0F);
}

} // namespace cellar::detail
