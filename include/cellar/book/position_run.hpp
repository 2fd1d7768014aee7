// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar::detail {

/// Neighbouring positions in neighbouring cells.
struct PositionRun {
    std::int32_t position;
    Cell cell;
    std::int32_t count;
    std::int32_t covered_from; ///< no position is missing from here to the run's end

    std::int32_t last() const { return position + count - 1; }
    PositionRun tail(std::int32_t n) const { return {position + count - n, cell + count - n, n, covered_from}; }
};

} // namespace cellar::detail
