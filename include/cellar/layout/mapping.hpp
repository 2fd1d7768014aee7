// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/layout/blocked_view.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace cellar {

/// The part of a cell's row [heads, dim] that is contiguous in memory.
enum class Segment {
    element, ///< one element
    head,    ///< the elements of one head
    row,     ///< the whole row
};

/// For `segment_cells` of a mapping: the segments of all cells are contiguous (no blocks).
inline constexpr std::int32_t all_cells = INT32_MAX;

/// What a mapping places in memory: the elements, or the units, of heads in cells.
class MappingExtents {
public:
    CELLAR_FUNCTION constexpr MappingExtents(std::int64_t cells, int heads, int dim)
        : cells_{cells}, heads_{heads}, dim_{dim} {}

    CELLAR_FUNCTION constexpr std::int64_t cells() const { return cells_; }
    /// The number of heads of a cell.
    CELLAR_FUNCTION constexpr int heads() const { return heads_; }
    /// The number of elements, or of units, of a head.
    CELLAR_FUNCTION constexpr int dim() const { return dim_; }

protected:
    std::int64_t cells_;
    int heads_;
    int dim_;
};

/// [cells, heads, dim], last index fastest: a cell's row is contiguous, and so are the rows of all cells.
class CellsHeadsDims : public MappingExtents {
public:
    static constexpr Segment segment = Segment::row;
    static constexpr std::int32_t segment_cells = all_cells;

    using MappingExtents::MappingExtents;

    /// From one cell to the next, in elements.
    CELLAR_FUNCTION constexpr std::int64_t stride_cell() const { return stride_head() * heads_; }
    /// As `stride_cell`.
    CELLAR_FUNCTION constexpr std::int64_t stride_head() const { return dim_; }
    /// As `stride_cell`.
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
};

/// [heads, dim, cells], last index fastest: for one head and d, the elements of all cells are contiguous. Multiplying
/// probabilities by values reads memory in order; writing a token touches heads * dim places.
class HeadsDimsCells : public MappingExtents {
public:
    static constexpr Segment segment = Segment::element;
    static constexpr std::int32_t segment_cells = all_cells;

    using MappingExtents::MappingExtents;

    /// From one cell to the next, in elements.
    CELLAR_FUNCTION constexpr std::int64_t stride_cell() const { return 1; }
    /// As `stride_cell`.
    CELLAR_FUNCTION constexpr std::int64_t stride_head() const { return stride_dim() * dim_; }
    /// As `stride_cell`.
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
};

/// [blocks, heads, cells of a block, dim], last index fastest: the rows of one head in a block of cells are contiguous.
/// The last block has memory for all its cells.
template <std::int32_t BlockCells>
    requires(BlockCells >= 2 && (BlockCells & (BlockCells - 1)) == 0)
class BlocksHeadsCellsDims : public MappingExtents {
public:
    static constexpr Segment segment = Segment::head;
    static constexpr std::int32_t segment_cells = BlockCells;

    using MappingExtents::MappingExtents;

    CELLAR_FUNCTION constexpr std::int64_t required_size() const {
        return (cells_ + BlockCells - 1) / BlockCells * BlockCells * heads_ * dim_;
    }

    CELLAR_FUNCTION constexpr std::int64_t operator()(std::int64_t cell, std::int64_t head, std::int64_t d) const {
        const std::int64_t in_block = cell & (BlockCells - 1);
        return (cell - in_block) * heads_ * dim_ + (head * BlockCells + in_block) * dim_ + d;
    }

    /// [range.count, heads, dim]
    template <class T>
    CELLAR_FUNCTION constexpr BlockedView<T, BlockCells> view(T* data, CellRange range) const {
        const std::int64_t in_block = range.first & (BlockCells - 1);
        return {data + (range.first - in_block) * heads_ * dim_, in_block, {range.count, heads_, dim_}};
    }
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
concept has_segments = requires {
    { M::segment } -> std::same_as<const Segment&>;
    { M::segment_cells } -> std::same_as<const std::int32_t&>;
}
&&M::segment_cells >= 1;

} // namespace detail

/// Where the element (cell, head, d) lies within one block of memory: index arithmetic, as a value that kernels carry.
///
/// - `m(cell, head, d)`: the offset in elements.
/// - `required_size()`: how many elements the block must hold.
/// - `view(data, range)`: a view of the cells in a range, indexed (cell, head, d). Its type is the mapping's own.
/// - `segment`: the part of a cell's row that is contiguous.
/// - `segment_cells`: cells are divided into blocks of this many, and within a block the segments of neighbouring cells
///   are contiguous. 1: each cell's segments stand alone. `all_cells`: all cells are one block.
///
/// Laws: offsets are injective and lie in [0, required_size()). If a segment is more than an element,
/// - a mapping with dim / n places packs of n elements where this one places the elements:
///   M{cells, heads, dim / n}(cell, head, d) * n = m(cell, head, d * n), for every n that divides dim;
/// - heads are equally far apart in every cell: m(cell, head, d) = m(cell, 0, d) + head * (m(0, 1, 0) - m(0, 0, 0)).
///
/// Nothing else may be assumed.
// clang-format off
template <class M>
concept LayoutMapping =
    std::is_trivially_copyable_v<M>
    && detail::made_from_extents<M> && detail::has_extents<M> && detail::has_required_size<M>
    && detail::has_offset<M> && detail::has_view<M> && detail::has_segments<M>;
// clang-format on

namespace detail {

/// True if the elements of one head of a cell are contiguous.
template <class M>
inline constexpr bool contiguous_heads = M::segment != Segment::element;
/// True if rows are contiguous.
template <class M>
inline constexpr bool contiguous_rows = M::segment == Segment::row&& M::segment_cells == all_cells;
/// True if, for one head and d, the elements of all cells are contiguous.
template <class M>
inline constexpr bool contiguous_cells = M::segment == Segment::element&& M::segment_cells == all_cells;

/// The cells of a block, if segments of neighbouring cells are contiguous within blocks; else 1.
template <class M>
inline constexpr std::int32_t block_cells = M::segment_cells == all_cells ? 1 : M::segment_cells;

/// How many of the n cells from `cell` on have contiguous segments.
template <class M>
constexpr std::int64_t cells_in_segment(std::int64_t cell, std::int64_t n) {
    if constexpr (M::segment_cells == all_cells) return n;
    const std::int64_t rest = M::segment_cells - cell % M::segment_cells;
    return rest < n ? rest : n;
}
/// The same for the n cells before `end`.
template <class M>
constexpr std::int64_t cells_in_segment_before(std::int64_t end, std::int64_t n) {
    if constexpr (M::segment_cells == all_cells) return n;
    const std::int64_t rest = (end - 1) % M::segment_cells + 1;
    return rest < n ? rest : n;
}

} // namespace detail

} // namespace cellar
