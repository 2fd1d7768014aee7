// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/shift/shift.hpp>

namespace cellar {

/// Stored tokens keep their positions: an operation that would shift them is refused with `cannot_shift`.
struct DisabledShift {
    static constexpr bool possible = false;
};

} // namespace cellar
