// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <array>
#include <cstdint>

namespace cellar {

/// Memory of a program's own for one plane of the keys or values of a layer.
struct RowsMemory {
    void* data = nullptr;                     ///< aligned for the stored element, unit or scale
    std::int64_t bytes = 0;                   ///< at least those of all cells; see `layer_bytes`
    std::array<std::int64_t, 3> strides = {}; ///< in units, of [cells, heads, dim]; zeros: those of the layout
};

/// The same for one layer. Scales are those of formats with two planes.
struct LayerMemory {
    RowsMemory keys{};
    RowsMemory values{};
    RowsMemory key_scales{};
    RowsMemory value_scales{};
};

/// The keys and values of a layer.
template <class Keys, class Values>
struct LayerRows {
    Keys keys;
    Values values;
};
template <class Keys, class Values>
LayerRows(Keys, Values) -> LayerRows<Keys, Values>; // clang 16 does not deduce it

} // namespace cellar
