// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>

#include <cstdint>

namespace cellar {

/// Copy cells [from, from + count) to [to, to + count), as memmove does.
struct Move {
    Cell from = 0;
    Cell to = 0;
    std::int32_t count = 0;

    constexpr bool operator==(const Move&) const = default;
};

/// Rotate the keys of cells [first, first + count) by `delta` positions.
struct KeyRotation {
    Cell first = 0;
    std::int32_t count = 0;
    std::int32_t delta = 0;

    constexpr bool operator==(const KeyRotation&) const = default;
};

/// The work that brings keys and values in line with the bookkeeping: first all moves, then all rotations. No move
/// writes a cell that another move of the plan reads, so moves may run in any order.
struct Plan {
    detail::TrivialList<Move> moves;
    detail::TrivialList<KeyRotation> rotations;
};

} // namespace cellar
