// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstdint>

namespace cellar {

/// A sequence's state after all tokens below position `next`.
struct KeptState {
    Position next;
    Slot slot = 0;
    bool is_checkpoint = false;

    constexpr bool operator==(const KeptState&) const = default;
};

/// Names one of the successive states that a slot holds, so that a handle to a state that is gone is noticed. A default
/// handle names none.
struct StateHandle {
    Slot slot = zero_slot;
    std::int64_t generation = 0;

    constexpr bool operator==(const StateHandle&) const = default;
};

} // namespace cellar
