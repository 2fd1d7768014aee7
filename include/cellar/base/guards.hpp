// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

namespace cellar::detail {

/// What a movable object has at a fixed address. A violation if the object was moved from.
template <class Pointer>
auto& expect_not_moved(const Pointer& pointer, const char* object, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, pointer != nullptr, "the ", object, " was moved from, expected one that was not");
    return *pointer;
}

/// What a pass works on. A violation if the pass is over.
template <class State>
State& expect_open(State* state, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, state != nullptr,
                      "the pass is over, expected one that was not committed, dropped or moved from");
    return *state;
}

/// A violation in `operation`, which needs that no pass is open.
inline void expect_no_pass(const char* operation, bool is_open, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, !is_open, operation, ": a pass is open, expected it to be committed or dropped first");
}

} // namespace cellar::detail
