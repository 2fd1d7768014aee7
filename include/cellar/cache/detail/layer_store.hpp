// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/element.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The keys or the values of one layer, in cells. The constructor allocates all memory; its address changes only in
/// `grow`, not even when the rows are moved. The backend that they are made with does all work on them.
template <LayoutMapping TheMapping, Element E, BackendPolicy Backend>
class RowStore {
public:
    using Mapping = TheMapping;
    using Buffer = typename Backend::template Buffer<E>;
    using element_type = E;

    RowStore(Backend& backend, const Mapping& mapping)
        : mapping_{mapping}, memory_{backend.template allocate<E>(mapping.required_size())} {}

    const Mapping& mapping() const { return mapping_; }
    Buffer& memory() { return memory_; }
    const Buffer& memory() const { return memory_; }
    const E* data() const { return memory_.data(); }

    std::int64_t bytes() const { return memory_.size() * std::int64_t{sizeof(E)}; }

    /// The elements of one cell's row.
    std::int64_t row() const { return std::int64_t{mapping_.heads()} * mapping_.dim(); }

    /// A range of cells, in place: [range.count, heads, dim], with the layout's strides.
    auto view(CellRange range) const { return mapping_.view(memory_.data(), range); }
    auto view(CellRange range) { return mapping_.view(memory_.data(), range); }

    /// Moves to memory of that many cells; never shrinks. Blocks. May throw, with nothing changed.
    void grow(Backend& backend, std::int64_t cells) {
        if (cells <= mapping_.cells()) return;
        const Mapping larger{cells, mapping_.heads(), mapping_.dim()};
        auto memory = backend.template allocate<E>(larger.required_size());
        if (row() != 0) copy_to(backend, larger, memory);
        mapping_ = larger;
        memory_ = std::move(memory);
    }

private:
    // All cells, some at a time. Blocks.
    void copy_to(Backend& backend, const Mapping& mapping, Buffer& memory) const {
        constexpr std::int64_t usual = (std::int64_t{8} << 20) / std::int64_t{sizeof(E)};
        const std::int64_t n = std::clamp<std::int64_t>(usual / row(), 1, mapping_.cells());
        Buffer rows = backend.template allocate<E>(n * row());
        TrivialList<Cell> cells(static_cast<std::size_t>(n));
        for (std::int64_t first = 0; first < mapping_.cells(); first += n) {
            cells.resize(static_cast<std::size_t>(std::min(n, mapping_.cells() - first)));
            std::iota(cells.begin(), cells.end(), static_cast<Cell>(first));
            const auto view = contiguous_view(rows.data(), std::ssize(cells), mapping_.heads(), mapping_.dim());
            const std::span<const Cell> some{cells};
            backend.gather(mapping_, memory_, some, view);
            backend.scatter(mapping, memory, some, static_cast<StridedView<const E, 3>>(view));
        }
        backend.fence(); // before the rows, and what they came from, are destroyed
    }

    Mapping mapping_;
    Buffer memory_;
};

/// The keys and values of one layer, in cells.
template <LayoutPolicy Layout, BackendPolicy Backend>
class LayerStore {
public:
    using Keys = RowStore<typename Layout::key_mapping, typename Layout::key_element, Backend>;
    using Values = RowStore<typename Layout::value_mapping, typename Layout::value_element, Backend>;

    /// Ignores `shape.shares_layer`.
    LayerStore(Backend& backend, std::int64_t cells, LayerShape shape)
        : keys_{backend, typename Keys::Mapping{cells, shape.kv_heads, shape.key_dim}},
          values_{backend, typename Values::Mapping{cells, shape.kv_heads, shape.value_dim}} {}

    /// How many cells have memory.
    std::int64_t cells() const { return std::min(keys_.mapping().cells(), values_.mapping().cells()); }
    std::int64_t bytes() const { return keys_.bytes() + values_.bytes(); }

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

private:
    Keys keys_;
    Values values_;
};

} // namespace cellar::detail
