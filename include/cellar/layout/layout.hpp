// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/element.hpp>
#include <cellar/layout/mapping.hpp>

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

} // namespace cellar
