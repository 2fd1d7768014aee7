// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Writes one element of one token's row to the token's cell. Elements are independent: any order, as long as no cell
/// is named twice.
template <class Mapping, class Element, class T>
struct Scatter {
    Mapping mapping;
    Element* memory;
    const Cell* cells;
    StridedView<const T, 3> rows; ///< [tokens, heads, dim]

    CELLAR_FUNCTION void operator()(std::int64_t token, std::int64_t head, std::int64_t d) const {
        memory[mapping(cells[token], head, d)] = static_cast<Element>(rows(token, head, d));
    }
};

} // namespace cellar::kernel
