// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// A user-defined shift policy, exact in every element type: moving a key by delta adds delta, times a constant, to the
/// elements of its pairs.
class AddingShift {
public:
    static constexpr bool possible = true;

    struct Factor {
        float added;
    };

    struct Rotation {
        int count;

        CELLAR_FUNCTION int pairs() const { return count; }
        CELLAR_FUNCTION int first(int pair) const { return 2 * pair; }
        CELLAR_FUNCTION int second(int pair) const { return 2 * pair + 1; }
        CELLAR_FUNCTION void rotate(float& a, float& b, Factor factor) const {
            a += factor.added;
            b += factor.added;
        }
    };

    /// `pairs`: the number of pairs in a head, for each layer.
    explicit AddingShift(std::vector<int> pairs, int times = 1)
        : pairs_{static_cast<std::vector<int>&&>(pairs)}, times_{times} {}

    Rotation rotation(int layer) const { return {pairs_[static_cast<std::size_t>(layer)]}; }
    Factor factor(int, int, std::int32_t delta) const { return {static_cast<float>(times_ * delta)}; }

private:
    std::vector<int> pairs_;
    int times_;
};
