// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/trivial_list.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// Whether later tokens can move into a gap that a removal leaves. Known at compile time, because what closes gaps is a
/// third of what a removal compiles to.
enum class Gaps { refused, closed };

/// What happens to keys whose tokens move to another position.
enum class MovedKeys {
    rotated, ///< keys are rotated; shared ones are copied first
    kept,    ///< keys carry no position and stay as they are
};

/// Positions [begin, end).
struct PositionSpan {
    Position begin;
    Position end;
};

/// A removal between its two phases: the decision, and room for the plan.
struct Removal {
    void reserve(std::int64_t runs) {
        if (keys == MovedKeys::rotated) plan.rotations.reserve(static_cast<std::size_t>(runs));
        plan.moves.reserve(static_cast<std::size_t>(copies));
    }

    /// True if tokens move.
    bool closes_gap() const { return begin != end && end != to_end; }

    Sequence sequence{};
    Position next{}; ///< where the sequence goes on afterwards
    Position begin{};
    Position end{};       ///< `begin`: there is nothing to remove; `to_end`: no token moves
    bool empties = false; ///< the sequence has no tokens afterwards, and the removal was to leave none
    MovedKeys keys = MovedKeys::kept;
    std::int32_t delta = 0;   ///< of the rotations
    std::int32_t copies = 0;  ///< shared cells to copy
    std::int32_t rotated = 0; ///< keys to rotate
    bool allocated = false;   ///< in the first phase
    /// If a gap is closed: what only a schedule that then ends has kept, as it lies before.
    TrivialList<PositionSpan> forgotten{};
    Plan plan{};
};

} // namespace cellar::detail
