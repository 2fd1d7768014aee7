// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// Neighbouring positions in neighbouring cells.
struct PositionRun {
    std::int32_t position;
    Cell cell;
    std::int32_t count;
    std::int32_t covered_from; ///< from here to the run's end, no position is missing

    std::int32_t last() const { return position + count - 1; }
    PositionRun tail(std::int32_t n) const { return {position + count - n, cell + count - n, n, covered_from}; }
};

/// The first position that has another cell in one of two lists of runs, or none; `to_end` if there is none. Positions
/// may repeat, and neighbouring runs need not be joined. O(runs up to there).
inline Position first_difference(std::span<const PositionRun> a, std::span<const PositionRun> b) {
    std::size_t i = 0;
    std::size_t j = 0;
    std::int32_t of_a = 0; // tokens of the run that are compared already
    std::int32_t of_b = 0;
    const auto skip = [](const PositionRun& run, std::size_t& at, std::int32_t& compared, std::int32_t n) {
        compared = compared + n == run.count ? 0 : compared + n;
        at += compared == 0 ? 1 : 0;
    };
    while (i < a.size() && j < b.size() && a[i].position + of_a == b[j].position + of_b
           && a[i].cell + of_a == b[j].cell + of_b) {
        const std::int32_t n = std::min(a[i].count - of_a, b[j].count - of_b);
        skip(a[i], i, of_a, n);
        skip(b[j], j, of_b, n);
    }
    const Position next_of_a = i < a.size() ? Position{a[i].position + of_a} : to_end;
    const Position next_of_b = j < b.size() ? Position{b[j].position + of_b} : to_end;
    return std::min(next_of_a, next_of_b);
}

} // namespace cellar::detail
