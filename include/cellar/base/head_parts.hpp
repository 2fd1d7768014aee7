// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar {

/// Parts of heads that are rotated each by itself, as floats in memory that a team of threads shares: `count` parts of
/// as many values as the rotation has. Rows of `in_row` parts follow one another, `pitch` floats apart.
struct HeadParts {
    float* values;
    std::int32_t count;
    std::int32_t in_row;
    std::int32_t pitch;
    std::int32_t size; ///< values of a part

    CELLAR_FUNCTION float* operator()(std::int32_t part) const {
        return values + std::int64_t{part / in_row} * pitch + std::int64_t{part % in_row} * size;
    }
};

} // namespace cellar
