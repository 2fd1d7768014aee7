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
#include <cellar/store/row_store.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// The keys and values of one layer, in cells. See `RowStore`.
template <LayoutPolicy Layout, BackendPolicy Backend>
class LayerStore {
public:
    using Keys = RowStore<typename Layout::key_mapping, typename Layout::key_element, Backend>;
    using Values = RowStore<typename Layout::value_mapping, typename Layout::value_element, Backend>;

    /// Ignores `shape.shares_layer`.
    LayerStore(Backend& backend, std::int64_t cells, LayerShape shape)
        : keys_{backend, typename Keys::Mapping{cells, shape.kv_heads, shape.key_dim}, "keys"},
          values_{backend, typename Values::Mapping{cells, shape.kv_heads, shape.value_dim}, "values"} {}

    /// How many cells have memory.
    std::int64_t cells() const { return std::min(keys_.mapping().cells(), values_.mapping().cells()); }
    std::int64_t bytes() const { return keys_.bytes() + values_.bytes(); }

    /// Enqueues: writes row i of `k` [tokens, kv_heads, key_dim] and `v` [tokens, kv_heads, value_dim] to cells[i].
    /// Rows may have any strides, and hold the stored element or float. For a layer without values, `v` is an empty
    /// view.
    template <class K, class V>
    void put(Backend& backend, std::span<const Cell> cells, StridedView<K, 3> k, StridedView<V, 3> v) {
        expect_rows(cells, k, v);
        keys_.put(backend, cells, k);
        if (v.size() != 0) values_.put(backend, cells, v);
    }

    /// Enqueues: reads cells[i] into row i of `k` and `v`, shaped as for `put`.
    template <class K, class V>
    void gather(Backend& backend, std::span<const Cell> cells, StridedView<K, 3> k, StridedView<V, 3> v) const {
        expect_rows(cells, k, v);
        keys_.gather(backend, cells, k);
        if (v.size() != 0) values_.gather(backend, cells, v);
    }

    /// The keys of a range of cells, in place: [range.count, kv_heads, key_dim], with the layout's strides.
    auto keys(CellRange range) const { return keys_.view(range); }
    auto keys(CellRange range) { return keys_.view(range); }

    /// The values of a range of cells, in place: [range.count, kv_heads, value_dim], with the layout's strides.
    auto values(CellRange range) const { return values_.view(range); }
    auto values(CellRange range) { return values_.view(range); }

    /// Bytes of the keys and values of one cell.
    std::int64_t row_bytes() const {
        return keys_.row() * std::int64_t{sizeof(typename Keys::element_type)}
               + values_.row() * std::int64_t{sizeof(typename Values::element_type)};
    }

    /// See `RowStore`. If it throws, the keys may have grown; nothing else has changed.
    void grow(Backend& backend, std::int64_t cells) {
        keys_.grow(backend, cells);
        values_.grow(backend, cells);
    }

    Keys& all_keys() { return keys_; }
    const Keys& read_keys() const { return keys_; }
    Values& all_values() { return values_; }
    const Values& read_values() const { return values_; }

    /// Enqueues.
    void move(Backend& backend, std::span<const Move> moves) {
        keys_.move(backend, moves);
        values_.move(backend, moves);
    }

    /// Enqueues: rotates keys. Values carry no position.
    template <ShiftPolicy Shift>
        requires(rotates_keys<Shift>)
    void rotate(Backend& backend, const Shift& shift, int layer, std::span<const KeyRotation> rotations) {
        const int min = min_dim(shift.rotation(layer));
        CELLAR_EXPECTS(min <= keys_.mapping().dim(), "store: the keys of layer ", layer, " have ",
                       keys_.mapping().dim(), " elements per head, expected at least the ", min,
                       " that the shift rotates");
        keys_.rotate(backend, shift, layer, rotations);
    }

private:
    template <class K, class V>
    void expect_rows(std::span<const Cell> cells, const StridedView<K, 3>& k, const StridedView<V, 3>& v) const {
        keys_.expect_rows(cells, k);
        if (values_.mapping().dim() != 0 || v.size() != 0) values_.expect_rows(cells, v);
    }

    Keys keys_;
    Values values_;
};

} // namespace cellar::detail
