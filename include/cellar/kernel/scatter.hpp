// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/kernel.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Writes row i to cell cells(i). All cells are different.
template <class Mapping, class Element, class T>
struct Scatter {
    using Value = Element;

    Mapping mapping;
    Element* memory;
    CellList cells;
    StridedView<const T, 3> rows; ///< [tokens, heads, dim]

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        const T row = rows(i, head, d); // loads a whole pack before converting it
        return static_cast<Element>(row);
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t d, const Value& value) const {
        memory[mapping(cells(i), head, d)] = value;
    }
};

} // namespace cellar::detail::kernel
