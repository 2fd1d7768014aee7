// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/cells.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Turns one pair of one head of one cell's key: reckoned in float, rounded once. Pairs are independent: any order.
template <class Mapping, class Element, class Rotation, class Factor, class Cells = CellRun>
struct Turn {
    Mapping mapping;
    Element* memory;
    Rotation rotation;
    const Factor* factors; ///< of pairs first_pair, first_pair + 1, ...
    Cells cells;
    int first_pair = 0;

    CELLAR_FUNCTION void operator()(std::int64_t i, std::int64_t head, int pair) const {
        Element& first = memory[mapping(cells(i), head, rotation.first(pair))];
        Element& second = memory[mapping(cells(i), head, rotation.second(pair))];
        float a = static_cast<float>(first);
        float b = static_cast<float>(second);
        rotation.turn(a, b, factors[pair - first_pair]);
        first = static_cast<Element>(a);
        second = static_cast<Element>(b);
    }
};

} // namespace cellar::kernel
