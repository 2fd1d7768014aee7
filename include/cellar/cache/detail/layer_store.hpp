// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/layer_memory.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// A plane in messages.
struct RowsName {
    const char* rows = "rows";
    int layer = 0;
};

/// One plane of the keys or values of a layer, in cells: a row of units for each cell, which are moved as they are. The
/// constructor allocates all memory; its address changes only in `grow`, not even when the plane is moved. The backend
/// that it is made with does all work on it.
template <LayoutMapping TheMapping, StorageUnit Unit, BackendPolicy Backend>
class PlaneStore {
public:
    using Mapping = TheMapping;
    using Buffer = typename Backend::template Buffer<Unit>;
    using element_type = Unit;

    PlaneStore(Backend& backend, const Mapping& mapping, const RowsMemory* given = nullptr, RowsName name = {})
        : mapping_{mapping}, memory_{make(backend, mapping, given, name)} {}

    const Mapping& mapping() const { return mapping_; }
    Buffer& memory() { return memory_; }
    const Buffer& memory() const { return memory_; }
    const Unit* data() const { return memory_.data(); }
    Plane<Mapping, Buffer> plane() { return {mapping_, memory_}; }
    Plane<Mapping, const Buffer> plane() const { return {mapping_, memory_}; }

    std::int64_t bytes() const { return memory_.size() * std::int64_t{sizeof(Unit)}; }

    /// The units of one cell's row.
    std::int64_t row() const { return std::int64_t{mapping_.heads()} * mapping_.dim(); }
    std::int64_t row_bytes() const { return row() * std::int64_t{sizeof(Unit)}; }

    /// A range of cells, in place: [range.count, heads, units of a head], with the layout's strides.
    auto view(CellRange range) const { return mapping_.view(memory_.data(), range); }
    auto view(CellRange range) { return mapping_.view(memory_.data(), range); }

    /// Moves to memory of that many cells; never shrinks. Blocks. May throw, with nothing changed.
    void grow(Backend& backend, std::int64_t cells) {
        if (cells <= mapping_.cells()) return;
        const Mapping larger{cells, mapping_.heads(), mapping_.dim()};
        auto memory = backend.template allocate<Unit>(larger.required_size());
        if (row() != 0) copy_to(backend, larger, memory);
        mapping_ = larger;
        memory_ = std::move(memory);
    }

    /// Writes zeros to these cells. Blocks. May throw, with nothing changed.
    void erase(Backend& backend, std::span<const Cell> cells) {
        if (cells.empty() || row() == 0) return;
        const std::size_t some = std::min(cells.size(), static_cast<std::size_t>(rows_at_once()));
        const Buffer zeros = backend.template allocate<Unit>(static_cast<std::int64_t>(some) * row());
        for (; !cells.empty(); cells = cells.subspan(std::min(some, cells.size()))) {
            const auto next = cells.first(std::min(some, cells.size()));
            backend.scatter(mapping_, memory_, next,
                            contiguous_view(zeros.data(), std::ssize(next), mapping_.heads(), mapping_.dim()));
        }
        backend.fence(); // before the zeros are destroyed
    }

    /// The memory of cells from `first` on goes back to the operating system until they are written again, if the
    /// buffer can do that. They hold anything then.
    void uncommit(std::int64_t first) noexcept {
        if constexpr (requires(Buffer & memory) { memory.uncommit(first, first); }) {
            const std::int64_t cells = mapping_.cells();
            if (row() == 0 || first >= cells) return;
            if constexpr (Mapping::segment != Segment::element) { // whole blocks are contiguous
                constexpr std::int64_t block = block_cells<Mapping>;
                const std::int64_t whole = (first + block - 1) / block * block;
                if (whole >= cells) return;
                const std::int64_t begin = mapping_(whole, 0, 0);
                memory_.uncommit(begin, memory_.size() - begin);
            } else if constexpr (contiguous_cells<Mapping>) {
                for (int head = 0; head < mapping_.heads(); ++head)
                    for (int d = 0; d < mapping_.dim(); ++d) memory_.uncommit(mapping_(first, head, d), cells - first);
            }
        }
    }

private:
    // Those that are copied in one call.
    std::int64_t rows_at_once() const {
        constexpr std::int64_t usual = (std::int64_t{8} << 20) / std::int64_t{sizeof(Unit)};
        return std::clamp<std::int64_t>(usual / row(), 1, mapping_.cells());
    }

    static Buffer make(Backend& backend, const Mapping& mapping, const RowsMemory* given, const RowsName& name) {
        const std::int64_t n = mapping.required_size();
        if constexpr (BorrowsMemory<Backend>)
            if (given != nullptr && n != 0) {
                auto* const data = static_cast<Unit*>(given->data);
                const std::int64_t bytes = n * std::int64_t{sizeof(Unit)};
                CELLAR_EXPECTS(data != nullptr, "memory: the ", name.rows, " of layer ", name.layer,
                               " are a null pointer, expected ", bytes, " bytes");
                CELLAR_EXPECTS(given->bytes >= bytes, "memory: the ", name.rows, " of layer ", name.layer, " have ",
                               given->bytes, " bytes, expected at least ", bytes, " for ", mapping.cells(), " cells");
                CELLAR_EXPECTS(reinterpret_cast<std::uintptr_t>(data) % alignof(Unit) == 0, "memory: the ", name.rows,
                               " of layer ", name.layer, " are not aligned, expected an address that is a multiple of ",
                               alignof(Unit));
                expect_strides(mapping, given->strides, name);
                return backend.borrow(data, n);
            }
        return backend.template allocate<Unit>(n);
    }

    static void expect_strides(const Mapping& mapping, const std::array<std::int64_t, 3>& given, const RowsName& name) {
        if (given == std::array<std::int64_t, 3>{}) return;
        const auto view = mapping.view(static_cast<Unit*>(nullptr), {0, 0});
        if constexpr (strided<decltype(view)>) {
            CELLAR_EXPECTS(given[0] == view.stride(0) && given[1] == view.stride(1) && given[2] == view.stride(2),
                           "memory: the ", name.rows, " of layer ", name.layer, " have strides [", given[0], ", ",
                           given[1], ", ", given[2], "], expected [", view.stride(0), ", ", view.stride(1), ", ",
                           view.stride(2), "], those of the layout");
        } else {
            CELLAR_EXPECTS(false, "memory: the ", name.rows, " of layer ", name.layer,
                           " have strides, expected none for a layout without strides");
        }
    }

    // All cells, some at a time. Blocks.
    void copy_to(Backend& backend, const Mapping& mapping, Buffer& memory) const {
        const std::int64_t n = rows_at_once();
        constexpr bool in_place = contiguous_rows<Mapping>; // cells follow each other in memory as rows do
        std::optional<Buffer> rows; // NOLINT(misc-const-correctness): written to where cells do not follow each other
        if constexpr (!in_place) rows.emplace(backend.template allocate<Unit>(n * row()));
        TrivialList<Cell> cells(static_cast<std::size_t>(n));
        for (std::int64_t first = 0; first < mapping_.cells(); first += n) {
            cells.resize(static_cast<std::size_t>(std::min(n, mapping_.cells() - first)));
            std::iota(cells.begin(), cells.end(), static_cast<Cell>(first));
            const auto rows_at = [&](auto* data) {
                return contiguous_view(data, std::ssize(cells), mapping_.heads(), mapping_.dim());
            };
            const std::span<const Cell> some{cells};
            if constexpr (in_place) {
                backend.scatter(mapping, memory, some, rows_at(memory_.data() + mapping_(first, 0, 0)));
            } else {
                backend.gather(mapping_, memory_, some, rows_at(rows->data()));
                backend.scatter(mapping, memory, some, rows_at(std::as_const(*rows).data()));
            }
        }
        backend.fence(); // before the rows, and what they came from, are destroyed
    }

    Mapping mapping_;
    Buffer memory_;
};

/// Units and scales of a range of cells, in place.
template <class Units, class Scales>
struct ScaledUnits {
    Units units;
    Scales scales;
};

/// In place of the plane of scales, where a format has none.
struct NoScales {
    template <class... Arguments>
    explicit NoScales(const Arguments&...) {}
    static constexpr std::int64_t bytes() { return 0; }
    static constexpr std::int64_t row_bytes() { return 0; }
    template <class Backend>
    static void grow(Backend&, std::int64_t) {}
};

/// The keys or the values of one layer, in cells: the plane of the units of their format, and that of the scales, if it
/// has any.
template <LayoutMapping Mapping, StorageFormat TheFormat, BackendPolicy Backend>
class RowStore : public PlaneStore<Mapping, unit_of<TheFormat>, Backend> {
    using Units = PlaneStore<Mapping, unit_of<TheFormat>, Backend>;

public:
    using Format = TheFormat;
    using Scales =
        std::conditional_t<has_scale_plane<Format>, PlaneStore<Mapping, scale_of<Format>, Backend>, NoScales>;

    /// `units`, `scales`: memory of a program's own, or null.
    RowStore(Backend& backend, const Mapping& values, const RowsMemory* units, RowsName of_units,
             const RowsMemory* scales, RowsName of_scales)
        : Units{backend, Mapping{values.cells(), values.heads(), values.dim() / values_per_unit<Format>}, units,
                of_units},
          scales_{backend, Mapping{values.cells(), values.heads(), scales_in<Format>(values.dim())}, scales,
                  of_scales} {}

    Scales& scales() { return scales_; }
    const Scales& scales() const { return scales_; }

    /// The values of a head.
    int dim() const { return this->mapping().dim() * values_per_unit<Format>; }

    std::int64_t bytes() const { return Units::bytes() + scales_.bytes(); }
    std::int64_t row_bytes() const { return Units::row_bytes() + scales_.row_bytes(); }
    /// In another format; null: in its own.
    std::int64_t row_bytes(const FormatCodec* as) const {
        if (as == nullptr) return row_bytes();
        return this->mapping().heads() * static_cast<std::int64_t>(as->head_bytes(static_cast<std::uint64_t>(dim())));
    }

    auto view(CellRange range) const { return view_of(*this, range); }
    auto view(CellRange range) { return view_of(*this, range); }

    /// If it throws, the units may have grown; nothing else has changed.
    void grow(Backend& backend, std::int64_t cells) {
        Units::grow(backend, cells);
        scales_.grow(backend, cells);
    }

    /// What floats are divided by before they are encoded: [heads, dim] where the backend reads it; null: nothing.
    const float* factors() const { return factors_; }
    void divide_by(const float* factors) { factors_ = factors; }

    /// Enqueues: writes row i of `rows`, of the stored units or of floats, to cells[i].
    template <class T>
    void put(Backend& backend, std::span<const Cell> cells, StridedView<const T, 3> rows) {
        if constexpr (Element<Format> || std::is_same_v<T, unit_of<Format>>) {
            backend.scatter(this->mapping(), this->memory(), cells, rows);
        } else if constexpr (has_scale_plane<Format>) {
            backend.template encode<Format>(cells, rows, factors_, this->plane(), scales_.plane());
        } else {
            backend.template encode<Format>(cells, rows, factors_, this->plane());
        }
    }

    /// Enqueues: reads cells[i] into row i of `rows`, of the stored units or of floats.
    template <class T>
    void gather(Backend& backend, std::span<const Cell> cells, StridedView<T, 3> rows) const {
        if constexpr (Element<Format> || std::is_same_v<T, unit_of<Format>>) {
            backend.gather(this->mapping(), this->memory(), cells, rows);
        } else if constexpr (has_scale_plane<Format>) {
            backend.template decode<Format>(cells, rows, factors_, this->plane(), scales_.plane());
        } else {
            backend.template decode<Format>(cells, rows, factors_, this->plane());
        }
    }

    /// Enqueues.
    template <class Shift>
    void rotate(Backend& backend, const Shift& shift, int layer, std::span<const KeyRotation> rotations) {
        if constexpr (Element<Format>) {
            backend.rotate(this->mapping(), this->memory(), shift, layer, rotations);
        } else if constexpr (has_scale_plane<Format>) {
            backend.template rotate_encoded<Format>(shift, layer, rotations, this->plane(), scales_.plane());
        } else {
            backend.template rotate_encoded<Format>(shift, layer, rotations, this->plane());
        }
    }

private:
    template <class Store>
    static auto view_of(Store& store, CellRange range) {
        std::conditional_t<std::is_const_v<Store>, const Units, Units>& units = store;
        if constexpr (has_scale_plane<Format>) {
            const auto own = units.view(range);
            const auto scales = store.scales_.view(range);
            using Own = std::remove_const_t<decltype(own)>;
            return ScaledUnits<Own, std::remove_const_t<decltype(scales)>>{own, scales};
        } else {
            return units.view(range);
        }
    }

    [[no_unique_address]] Scales scales_;
    const float* factors_ = nullptr;
};

/// The planes of a layer's store, by the members that return them.
template <auto... Members>
struct PlaneList {};

/// Calls f(plane) for each.
template <class Store, auto... Members, class F>
void for_each_plane(Store& store, PlaneList<Members...>, F f) {
    (f((store.*Members)()), ...);
}

/// The keys and values of one layer, in cells.
template <LayoutPolicy Layout, BackendPolicy Backend>
class LayerStore {
public:
    using Keys = RowStore<typename Layout::key_mapping, typename Layout::key_format, Backend>;
    using Values = RowStore<typename Layout::value_mapping, typename Layout::value_format, Backend>;

    /// Ignores `shape.shares_layer`. `memory`: a program's own, or null. `layer`: for messages.
    LayerStore(Backend& backend, std::int64_t cells, LayerShape shape, const LayerMemory* memory = nullptr,
               int layer = 0)
        : keys_{backend,
                typename Keys::Mapping{cells, shape.kv_heads, shape.key_dim},
                memory == nullptr ? nullptr : &memory->keys,
                {"keys", layer},
                memory == nullptr ? nullptr : &memory->key_scales,
                {"scales of the keys", layer}},
          values_{backend,
                  typename Values::Mapping{cells, shape.kv_heads, shape.value_dim},
                  memory == nullptr ? nullptr : &memory->values,
                  {"values", layer},
                  memory == nullptr ? nullptr : &memory->value_scales,
                  {"scales of the values", layer}} {}

    std::int64_t bytes() const { return keys_.bytes() + values_.bytes(); }

    /// Bytes of the keys and values of one cell.
    std::int64_t row_bytes() const { return keys_.row_bytes() + values_.row_bytes(); }
    std::int64_t row_bytes(const StoredAs& as) const { return keys_.row_bytes(as.keys) + values_.row_bytes(as.values); }

    /// See `PlaneStore`. If it throws, some planes may have grown; nothing else has changed.
    void grow(Backend& backend, std::int64_t cells) {
        keys_.grow(backend, cells);
        values_.grow(backend, cells);
    }

    /// Both in these cells, in place.
    auto rows(CellRange cells) const { return LayerRows{keys_.view(cells), values_.view(cells)}; }
    auto rows(CellRange cells) { return LayerRows{keys_.view(cells), values_.view(cells)}; }

    /// If there are keys alone, values are the first elements of keys.
    RowFactors factors() const {
        if (values_.dim() == 0) return {keys_.factors(), keys_.factors(), keys_.dim()};
        return {keys_.factors(), values_.factors(), values_.dim()};
    }

    Keys& all_keys() { return keys_; }
    const Keys& read_keys() const { return keys_; }
    typename Keys::Scales& key_scales() { return keys_.scales(); }
    Values& all_values() { return values_; }
    const Values& read_values() const { return values_; }
    typename Values::Scales& value_scales() { return values_.scales(); }

    /// What is moved.
    static constexpr auto planes() {
        constexpr bool of_keys = has_scale_plane<typename Layout::key_format>;
        constexpr bool of_values = has_scale_plane<typename Layout::value_format>;
        if constexpr (of_keys && of_values) {
            return PlaneList<&LayerStore::all_keys, &LayerStore::key_scales, &LayerStore::all_values,
                             &LayerStore::value_scales>{};
        } else if constexpr (of_keys) {
            return PlaneList<&LayerStore::all_keys, &LayerStore::key_scales, &LayerStore::all_values>{};
        } else if constexpr (of_values) {
            return PlaneList<&LayerStore::all_keys, &LayerStore::all_values, &LayerStore::value_scales>{};
        } else {
            return PlaneList<&LayerStore::all_keys, &LayerStore::all_values>{};
        }
    }

private:
    Keys keys_;
    Values values_;
};

} // namespace cellar::detail
