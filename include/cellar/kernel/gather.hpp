// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Reads one element of one cell's row. Elements are independent: any order.
template <class Mapping, class Element, class T>
struct Gather {
    Mapping mapping;
    const Element* memory;
    const Cell* cells;
    StridedView<T, 3> rows; ///< [cells.size(), heads, dim]

    CELLAR_FUNCTION void operator()(std::int64_t i, std::int64_t head, std::int64_t d) const {
        rows(i, head, d) = static_cast<T>(memory[mapping(cells[i], head, d)]);
    }
};

} // namespace cellar::kernel
