// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/kernel.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Reads cell cells(i) into row i.
template <class Mapping, class Element, class T>
struct Gather {
    using Value = T;

    Mapping mapping;
    const Element* memory;
    CellList cells;
    StridedView<T, 3> rows; ///< [cells, heads, dim]

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        const Element element = memory[mapping(cells(i), head, d)]; // loads a whole pack before converting it
        return static_cast<T>(element);
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t d, const Value& value) const {
        rows(i, head, d) = value;
    }
};

} // namespace cellar::detail::kernel
