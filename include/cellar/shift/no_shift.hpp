// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/shift/shift.hpp>

namespace cellar {

/// Stored keys keep their position: what would shift them is refused.
struct NoShift {
    static constexpr bool possible = false;
};

} // namespace cellar
