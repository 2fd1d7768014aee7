// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/cells.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Row i to cell cells(i), where no cell is named twice.
template <class Mapping, class Element, class T>
struct Scatter {
    using Value = Element;

    Mapping mapping;
    Element* memory;
    CellList cells;
    StridedView<const T, 3> rows; ///< [tokens, heads, dim]

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        const T row = rows(i, head, d); // a pack is read at once, and then converted
        return static_cast<Element>(row);
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t d, const Value& value) const {
        memory[mapping(cells(i), head, d)] = value;
    }
};

} // namespace cellar::kernel
