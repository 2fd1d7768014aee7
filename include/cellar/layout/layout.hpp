// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/element.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

/// Keys and values both as [cells, heads, dim].
template <Element Key, Element Value = Key>
struct StandardV {
    using key_element = Key;
    using value_element = Value;
    using key_mapping = CellsHeadsDims;
    using value_mapping = CellsHeadsDims;
};

/// Keys as [cells, heads, dim], values as [heads, dim, cells].
template <Element Key, Element Value = Key>
struct PermutedV {
    using key_element = Key;
    using value_element = Value;
    using key_mapping = CellsHeadsDims;
    using value_mapping = HeadsDimsCells;
};

/// Keys and values both as [blocks, heads, cells of a block, dim]: in a block, the rows of one head are contiguous. The
/// fastest layout for attention in place, and that of the page tables of vLLM and FlashInfer (HND).
///
/// Histories start and end at whole blocks: the cache rounds its padding up to a multiple of BlockCells.
template <Element Key, std::int32_t BlockCells = 64, Element Value = Key>
struct Blocked {
    using key_element = Key;
    using value_element = Value;
    using key_mapping = BlocksHeadsCellsDims<BlockCells>;
    using value_mapping = BlocksHeadsCellsDims<BlockCells>;
};

namespace detail {

template <class L>
concept has_elements = Element<typename L::key_element> && Element<typename L::value_element>;
template <class L>
concept has_mappings = LayoutMapping<typename L::key_mapping> && LayoutMapping<typename L::value_mapping>;

} // namespace detail

/// How keys and values are stored: their element types, and the mappings from (cell, head, d) to memory. A tag without
/// state.
template <class L>
concept LayoutPolicy = detail::has_elements<L> && detail::has_mappings<L>;

namespace detail {

/// The cells of the blocks that a layout divides memory into; 1 for a layout without blocks.
template <LayoutPolicy L>
inline constexpr std::int32_t layout_block_cells = std::max(block_cells<typename L::key_mapping>,
                                                            block_cells<typename L::value_mapping>);

} // namespace detail

} // namespace cellar
