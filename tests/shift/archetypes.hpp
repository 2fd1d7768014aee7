// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/shift/shift.hpp>

#include <cstdint>

namespace cellar_test {

/// A user-defined shift. Pairs are neighbouring elements; a shift adds delta * (layer + 1) to the first element of a
/// pair and twice as much to the second. Exact for small integers.
struct AddShift {
    static constexpr bool possible = true;

    using Factor = float;

    struct Rotation {
        int count;

        CELLAR_FUNCTION int pairs() const { return count; }
        CELLAR_FUNCTION int first(int pair) const { return 2 * pair; }
        CELLAR_FUNCTION int second(int pair) const { return 2 * pair + 1; }
        CELLAR_FUNCTION static void rotate(float& a, float& b, Factor delta) {
            a += delta;
            b += 2 * delta;
        }
    };

    int pairs;

    Rotation rotation(int) const { return {pairs}; }
    Factor factor(int layer, int, std::int32_t delta) const { return static_cast<float>(delta * (layer + 1)); }
};

} // namespace cellar_test
