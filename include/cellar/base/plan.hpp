// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstdint>
#include <vector>

namespace cellar {

/// Copy cells [from, from + count) to [to, to + count), as memmove does.
struct Move {
    Cell from = 0;
    Cell to = 0;
    std::int32_t count = 0;

    constexpr bool operator==(const Move&) const = default;
};

/// Turn the keys of cells [first, first + count) by `delta` positions.
struct Turn {
    Cell first = 0;
    std::int32_t count = 0;
    std::int32_t delta = 0;

    constexpr bool operator==(const Turn&) const = default;
};

/// What the memory has to do so that it matches the bookkeeping again: first all moves, then all turns. No move
/// writes a cell that another move of the plan reads, so they may run in any order.
struct Plan {
    std::vector<Move> moves;
    std::vector<Turn> turns;
};

} // namespace cellar
