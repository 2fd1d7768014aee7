// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/layout/element.hpp>
#include <cellar/layout/mapping.hpp>

namespace cellar {

/// Keys and values both as [cells, heads, dim].
template <element Key, element Value = Key>
struct StandardV {
    using key_element = Key;
    using value_element = Value;
    using key_mapping = CellsHeadsDims;
    using value_mapping = CellsHeadsDims;
};

/// Keys as [cells, heads, dim], values as [heads, dim, cells].
template <element Key, element Value = Key>
struct PermutedV {
    using key_element = Key;
    using value_element = Value;
    using key_mapping = CellsHeadsDims;
    using value_mapping = HeadsDimsCells;
};

template <class L>
concept has_elements = element<typename L::key_element> && element<typename L::value_element>;
template <class L>
concept has_mappings = mapping<typename L::key_mapping> && mapping<typename L::value_mapping>;

/// The order and the element types of keys and values. A tag: it has no state of its own.
template <class L>
concept layout_policy = has_elements<L> && has_mappings<L>;

} // namespace cellar
