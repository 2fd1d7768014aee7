// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/storage_format.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

/// Keys and values both as [cells, heads, dim].
template <StorageFormat Key, StorageFormat Value = Key>
struct StandardV {
    using key_format = Key;
    using value_format = Value;
    using key_mapping = CellsHeadsDims;
    using value_mapping = CellsHeadsDims;
};

/// Keys as [cells, heads, dim], values as [heads, dim, cells].
template <StorageFormat Key, StorageFormat Value = Key>
struct PermutedV {
    static_assert(Element<Value>, "PermutedV: units of several values would lie along the cells, and not in one cell, "
                                  "so its values are float, half or bfloat16");
    using key_format = Key;
    using value_format = Value;
    using key_mapping = CellsHeadsDims;
    using value_mapping = HeadsDimsCells;
};

/// Keys and values both as [blocks, heads, cells of a block, dim]: in a block, the rows of one head are contiguous. The
/// fastest layout for attention in place, and that of the page tables of vLLM and FlashInfer (HND).
///
/// Histories start and end at whole blocks: the cache rounds its padding up to a multiple of BlockCells.
template <StorageFormat Key, std::int32_t BlockCells = 64, StorageFormat Value = Key>
struct Blocked {
    using key_format = Key;
    using value_format = Value;
    using key_mapping = BlocksHeadsCellsDims<BlockCells>;
    using value_mapping = BlocksHeadsCellsDims<BlockCells>;
};

namespace detail {

template <class L>
concept has_formats = StorageFormat<typename L::key_format> && StorageFormat<typename L::value_format>;
template <class L>
concept has_mappings = LayoutMapping<typename L::key_mapping> && LayoutMapping<typename L::value_mapping>;
/// The units of a head are encoded together, so they are contiguous.
template <class Mapping, class Format>
concept keeps_heads_together = Element<Format> || contiguous_heads<Mapping>;
template <class L>
concept keeps_units_in_heads =
    keeps_heads_together<typename L::key_mapping, typename L::key_format> && keeps_heads_together<
        typename L::value_mapping, typename L::value_format>;

} // namespace detail

/// How keys and values are stored: their formats, and the mappings from (cell, head, unit) to memory. A tag without
/// state. A mapping whose segments are single elements stores float, half and bfloat16 alone.
template <class L>
concept LayoutPolicy = detail::has_formats<L> && detail::has_mappings<L> && detail::keeps_units_in_heads<L>;

namespace detail {

/// The cells of the blocks that a layout divides memory into; 1 for a layout without blocks.
template <LayoutPolicy L>
inline constexpr std::int32_t layout_block_cells = std::max(block_cells<typename L::key_mapping>,
                                                            block_cells<typename L::value_mapping>);

} // namespace detail

} // namespace cellar
