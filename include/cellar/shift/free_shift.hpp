// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/shift/shift.hpp>

namespace cellar {

/// Stored keys carry no position (NoPE, ALiBi): a token moves to another one as it is, and stays shared.
struct FreeShift {
    static constexpr bool possible = true;
    static constexpr bool turns = false;
};

} // namespace cellar
