// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace cellar {

/// [cells, heads, dim], last index fastest: a cell's row is contiguous, and rows follow one another.
class CellsHeadsDims {
public:
    static constexpr bool contiguous_rows = true;
    static constexpr bool contiguous_cells = false;

    CELLAR_FUNCTION constexpr CellsHeadsDims(std::int64_t cells, int heads, int dim)
        : cells_{cells}, heads_{heads}, dim_{dim} {}

    CELLAR_FUNCTION constexpr std::int64_t cells() const { return cells_; }
    CELLAR_FUNCTION constexpr int heads() const { return heads_; }
    CELLAR_FUNCTION constexpr int dim() const { return dim_; }

    CELLAR_FUNCTION constexpr std::int64_t stride_cell() const { return stride_head() * heads_; }
    CELLAR_FUNCTION constexpr std::int64_t stride_head() const { return dim_; }
    CELLAR_FUNCTION constexpr std::int64_t stride_dim() const { return 1; }

    CELLAR_FUNCTION constexpr std::int64_t required_size() const { return cells_ * stride_cell(); }

    CELLAR_FUNCTION constexpr std::int64_t operator()(std::int64_t cell, std::int64_t head, std::int64_t d) const {
        return cell * stride_cell() + head * stride_head() + d;
    }

    /// [range.count, heads, dim]
    template <class T>
    CELLAR_FUNCTION constexpr StridedView<T, 3> view(T* data, CellRange range) const {
        return {data + range.first * stride_cell(),
                {range.count, heads_, dim_},
                {stride_cell(), stride_head(), stride_dim()}};
    }

private:
    std::int64_t cells_;
    int heads_;
    int dim_;
};

/// [heads, dim, cells], last index fastest: for one head and d, the elements of all cells are contiguous. Multiplying
/// probabilities by values reads memory in order; writing a token touches heads * dim places.
class HeadsDimsCells {
public:
    static constexpr bool contiguous_rows = false;
    static constexpr bool contiguous_cells = true;

    CELLAR_FUNCTION constexpr HeadsDimsCells(std::int64_t cells, int heads, int dim)
        : cells_{cells}, heads_{heads}, dim_{dim} {}

    CELLAR_FUNCTION constexpr std::int64_t cells() const { return cells_; }
    CELLAR_FUNCTION constexpr int heads() const { return heads_; }
    CELLAR_FUNCTION constexpr int dim() const { return dim_; }

    CELLAR_FUNCTION constexpr std::int64_t stride_cell() const { return 1; }
    CELLAR_FUNCTION constexpr std::int64_t stride_head() const { return stride_dim() * dim_; }
    CELLAR_FUNCTION constexpr std::int64_t stride_dim() const { return cells_; }

    CELLAR_FUNCTION constexpr std::int64_t required_size() const { return heads_ * stride_head(); }

    CELLAR_FUNCTION constexpr std::int64_t operator()(std::int64_t cell, std::int64_t head, std::int64_t d) const {
        return head * stride_head() + d * stride_dim() + cell;
    }

    /// [range.count, heads, dim], the first index fastest.
    template <class T>
    CELLAR_FUNCTION constexpr StridedView<T, 3> view(T* data, CellRange range) const {
        // A layer without values has no memory, and a null pointer takes no offset.
        return {dim_ == 0 ? data : data + range.first,
                {range.count, heads_, dim_},
                {stride_cell(), stride_head(), stride_dim()}};
    }

private:
    std::int64_t cells_;
    int heads_;
    int dim_;
};

namespace detail {

template <class M>
concept made_from_extents = requires(std::int64_t cells, int heads, int dim) {
    M{cells, heads, dim};
};
template <class M>
concept has_extents = requires(const M m) {
    { m.cells() } -> std::same_as<std::int64_t>;
    { m.heads() } -> std::same_as<int>;
    { m.dim() } -> std::same_as<int>;
};
template <class M>
concept has_required_size = requires(const M m) {
    { m.required_size() } -> std::same_as<std::int64_t>;
};
template <class M>
concept has_offset = requires(const M m, std::int64_t i) {
    { m(i, i, i) } -> std::same_as<std::int64_t>;
};
template <class M>
concept has_view = requires(const M m, float* data, const float* constant, CellRange range) {
    m.view(data, range);
    m.view(constant, range);
};
template <class M>
concept has_contiguity = requires {
    { M::contiguous_rows } -> std::convertible_to<bool>;
    { M::contiguous_cells } -> std::convertible_to<bool>;
};

} // namespace detail

/// Where the element (cell, head, d) lies within one block of memory: index arithmetic, as a value that kernels carry.
///
/// - `m(cell, head, d)`: the offset in elements.
/// - `required_size()`: how many elements the block must hold.
/// - `view(data, range)`: a view of the cells in a range, indexed (cell, head, d). Its type is the mapping's own.
/// - `contiguous_rows`: offsets are (cell * heads + head) * dim + d.
/// - `contiguous_cells`: for one head and d, cell c + 1 directly follows cell c.
///
/// Laws: offsets are injective and lie in [0, required_size()). Nothing else may be assumed; both flags may be false.
// clang-format off
template <class M>
concept LayoutMapping =
    std::is_trivially_copyable_v<M>
    && detail::made_from_extents<M> && detail::has_extents<M> && detail::has_required_size<M>
    && detail::has_offset<M> && detail::has_view<M> && detail::has_contiguity<M>;
// clang-format on

} // namespace cellar
