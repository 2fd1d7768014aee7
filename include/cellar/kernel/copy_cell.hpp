// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Copies one element of cell from[i] to cell to[i]. Elements are independent: any order, as long as no cell is both
/// read and written.
template <class Mapping, class Element>
struct CopyCell {
    Mapping mapping;
    Element* memory;
    const Cell* from;
    const Cell* to;

    CELLAR_FUNCTION void operator()(std::int64_t i, std::int64_t head, std::int64_t d) const {
        memory[mapping(to[i], head, d)] = memory[mapping(from[i], head, d)];
    }
};

} // namespace cellar::kernel
