// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cellar {

/// What becomes of keys whose tokens move to another position.
enum class MovedKeys {
    refused, ///< they cannot move
    turned,  ///< they are turned; those that others own too are copied first
    kept,    ///< nothing: they carry no position
};

namespace detail {

/// Neighbouring positions of a sequence in neighbouring cells.
struct Piece {
    Position position;
    Cell cell;
    std::int32_t count;
};

/// A removal between its two halves: what was decided, and the room for what it will write.
struct Removal {
    void start(Sequence s, Position from, Position to, MovedKeys moved) {
        sequence = s;
        begin = from;
        end = to;
        keys = moved;
        copies = 0;
        plan.moves.clear();
        plan.turns.clear();
        later.clear();
    }

    void reserve(std::int64_t runs) {
        if (copies != 0) later.reserve(static_cast<std::size_t>(runs));
        if (keys == MovedKeys::turned) plan.turns.reserve(static_cast<std::size_t>(runs));
        plan.moves.reserve(static_cast<std::size_t>(copies));
    }

    Sequence sequence{};
    Position begin{};
    Position end{}; ///< `begin`: there is nothing to drop; `end_of_time`: nothing moves
    MovedKeys keys = MovedKeys::refused;
    std::int32_t copies = 0; ///< cells that others own too
    Plan plan;
    std::vector<Piece> later; ///< where the tokens behind the gap lie, when some were copied
};

} // namespace detail

} // namespace cellar
