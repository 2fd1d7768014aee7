// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/shift/shift.hpp>

namespace cellar {

/// For keys that are stored without a rotary position (NoPE, ALiBi, cross attention). Shifting a token changes its
/// position in the bookkeeping and nothing else: no key is rotated or copied, and shared cells stay shared.
struct UnrotatedShift {
    static constexpr bool possible = true;
    static constexpr bool rotates = false;
};

} // namespace cellar
