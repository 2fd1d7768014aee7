// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/view.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/shift.hpp>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

namespace cellar::detail {

/// An element type of rows outside the memory, where the memory stores E.
template <class T, class E>
concept row_element = std::same_as<T, E> || std::same_as<T, float>;

/// The keys and values of one layer, in cells. The constructor allocates all memory; its address never changes, not
/// even when the store is moved. Every operation takes the backend that the store was made with.
template <LayoutPolicy Layout, BackendPolicy Backend>
class LayerStore {
public:
    using key_element = typename Layout::key_element;
    using value_element = typename Layout::value_element;
    using key_mapping = typename Layout::key_mapping;
    using value_mapping = typename Layout::value_mapping;

    /// Ignores `shape.shares`.
    LayerStore(Backend& backend, std::int64_t cells, LayerShape shape)
        : key_mapping_{cells, shape.kv_heads, shape.key_dim},
          value_mapping_{cells, shape.kv_heads, shape.value_dim},
          keys_{backend.template allocate<key_element>(key_mapping_.required_size())},
          values_{backend.template allocate<value_element>(value_mapping_.required_size())} {}

    std::int64_t cells() const { return key_mapping_.cells(); }

    std::int64_t bytes() const {
        return keys_.size() * static_cast<std::int64_t>(sizeof(key_element))
               + values_.size() * static_cast<std::int64_t>(sizeof(value_element));
    }

    /// Enqueues: writes row i of `k` [tokens, kv_heads, key_dim] and `v` [tokens, kv_heads, value_dim] to cells[i].
    /// Rows may have any strides, and hold the stored element or float. For a layer without values, `v` is an empty
    /// view.
    template <class K, class V>
    void put(Backend& backend, std::span<const Cell> cells, StridedView<K, 3> k, StridedView<V, 3> v) {
        expect_rows(cells, k, v);
        backend.scatter(key_mapping_, keys_, cells, static_cast<StridedView<const K, 3>>(k));
        if (v.size() != 0) backend.scatter(value_mapping_, values_, cells, static_cast<StridedView<const V, 3>>(v));
    }

    /// Enqueues: reads cells[i] into row i of `k` and `v`, shaped as for `put`.
    template <class K, class V>
    void gather(Backend& backend, std::span<const Cell> cells, StridedView<K, 3> k, StridedView<V, 3> v) const {
        expect_rows(cells, k, v);
        backend.gather(key_mapping_, keys_, cells, k);
        if (v.size() != 0) backend.gather(value_mapping_, values_, cells, v);
    }

    /// The keys of a range of cells, in place: [range.count, kv_heads, key_dim], with the layout's strides.
    auto keys(CellRange range) const { return key_mapping_.view(keys_.data(), range); }
    auto keys(CellRange range) { return key_mapping_.view(keys_.data(), range); }

    /// The values of a range of cells, in place: [range.count, kv_heads, value_dim], with the layout's strides.
    auto values(CellRange range) const { return value_mapping_.view(values_.data(), range); }
    auto values(CellRange range) { return value_mapping_.view(values_.data(), range); }

    /// Enqueues.
    void move(Backend& backend, std::span<const Move> moves) {
        backend.move(key_mapping_, keys_, moves);
        backend.move(value_mapping_, values_, moves);
    }

    /// Enqueues: rotates keys. Values carry no position.
    template <ShiftPolicy Shift>
        requires(rotates_keys<Shift>)
    void rotate(Backend& backend, const Shift& shift, int layer, std::span<const KeyRotation> rotations) {
        const int min = min_dim(shift.rotation(layer));
        CELLAR_EXPECTS(min <= key_mapping_.dim(), "store: the keys of layer ", layer, " have ", key_mapping_.dim(),
                       " elements per head, expected at least the ", min, " that the shift rotates");
        backend.rotate(key_mapping_, keys_, shift, layer, rotations);
    }

private:
    template <class K, class V>
    void expect_rows(std::span<const Cell> cells, const StridedView<K, 3>& k, const StridedView<V, 3>& v) const {
        static_assert(
            row_element<std::remove_const_t<K>, key_element> && row_element<std::remove_const_t<V>, value_element>,
            "the rows of a layer hold its stored element or float");
        expect_extents("keys", key_mapping_, cells, k);
        if (value_mapping_.dim() != 0 || v.size() != 0) expect_extents("values", value_mapping_, cells, v);
    }

    template <class Mapping, class T>
    static void expect_extents(std::string_view what, const Mapping& mapping, std::span<const Cell> cells,
                               const StridedView<T, 3>& rows) {
        CELLAR_EXPECTS(rows.extent(0) == std::ssize(cells) && rows.extent(1) == mapping.heads()
                           && rows.extent(2) == mapping.dim(),
                       "store: the ", what, " given are [", rows.extent(0), " tokens, ", rows.extent(1), " heads, ",
                       rows.extent(2), " dims], expected [", std::ssize(cells), " tokens, ", mapping.heads(),
                       " heads, ", mapping.dim(), " dims]");
    }

    key_mapping key_mapping_;
    value_mapping value_mapping_;
    typename Backend::template Buffer<key_element> keys_;
    typename Backend::template Buffer<value_element> values_;
};

} // namespace cellar::detail
