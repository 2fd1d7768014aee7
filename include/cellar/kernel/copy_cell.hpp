// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/cells.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Copies cell from(i) to cell to(i), where no cell is both read and written.
template <class Mapping, class Element>
struct CopyCell {
    using Value = Element;

    Mapping mapping;
    Element* memory;
    CellList from;
    CellList to;

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        return memory[mapping(from(i), head, d)];
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t d, const Value& value) const {
        memory[mapping(to(i), head, d)] = value;
    }
};

} // namespace cellar::kernel
