// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/element.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// An element type of rows outside the memory, where the memory stores E.
template <class T, class E>
concept row_element = std::same_as<T, E> || std::same_as<T, float>;

/// The keys or the values of one layer, in cells. The constructor allocates all memory; its address changes only in
/// `grow`, not even when the store is moved. Every operation takes the backend that the store was made with.
template <LayoutMapping TheMapping, Element E, BackendPolicy Backend>
class RowStore {
public:
    using Mapping = TheMapping;
    using element_type = E;

    /// `what`: "keys" or "values", for messages.
    RowStore(Backend& backend, const Mapping& mapping, std::string_view what)
        : mapping_{mapping}, what_{what}, memory_{backend.template allocate<E>(mapping.required_size())} {}

    const Mapping& mapping() const { return mapping_; }
    const E* data() const { return memory_.data(); }

    std::int64_t bytes() const { return memory_.size() * static_cast<std::int64_t>(sizeof(E)); }

    /// The elements of one cell's row.
    std::int64_t row() const { return std::int64_t{mapping_.heads()} * mapping_.dim(); }

    /// A violation if `rows` are not what `put` and `gather` take.
    template <class T>
    void expect_rows(std::span<const Cell> cells, const StridedView<T, 3>& rows) const {
        static_assert(row_element<std::remove_const_t<T>, E>, "the rows of a layer hold its stored element or float");
        CELLAR_EXPECTS(rows.extent(0) == std::ssize(cells) && rows.extent(1) == mapping_.heads()
                           && rows.extent(2) == mapping_.dim(),
                       "store: the ", what_, " given are [", rows.extent(0), " tokens, ", rows.extent(1), " heads, ",
                       rows.extent(2), " dims], expected [", std::ssize(cells), " tokens, ", mapping_.heads(),
                       " heads, ", mapping_.dim(), " dims]");
    }

    /// Enqueues: writes row i of `rows` [tokens, heads, dim] to cells[i]. Does not check them.
    template <class T>
    void put(Backend& backend, std::span<const Cell> cells, StridedView<T, 3> rows) {
        backend.scatter(mapping_, memory_, cells, static_cast<StridedView<const T, 3>>(rows));
    }

    /// Enqueues: reads cells[i] into row i. Does not check the rows.
    template <class T>
    void gather(Backend& backend, std::span<const Cell> cells, StridedView<T, 3> rows) const {
        backend.gather(mapping_, memory_, cells, rows);
    }

    /// A range of cells, in place: [range.count, heads, dim], with the layout's strides.
    auto view(CellRange range) const { return mapping_.view(memory_.data(), range); }
    auto view(CellRange range) { return mapping_.view(memory_.data(), range); }

    /// Enqueues.
    void move(Backend& backend, std::span<const Move> moves) { backend.move(mapping_, memory_, moves); }

    /// Enqueues.
    template <class Shift>
    void rotate(Backend& backend, const Shift& shift, int layer, std::span<const KeyRotation> rotations) {
        backend.rotate(mapping_, memory_, shift, layer, rotations);
    }

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
    using Buffer = typename Backend::template Buffer<E>;

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
            gather(backend, cells, view);
            backend.scatter(mapping, memory, cells, static_cast<StridedView<const E, 3>>(view));
        }
        backend.fence(); // before the rows, and what they came from, are destroyed
    }

    Mapping mapping_;
    std::string_view what_;
    Buffer memory_;
};

} // namespace cellar::detail
