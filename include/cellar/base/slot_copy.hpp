// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>

namespace cellar {

/// The index of the place that holds one sequence's recurrent state, the same in every layer.
using Slot = std::int32_t;

/// One tensor's rows in two places. Row i begins i * stride bytes after the first one.
struct SlotRows {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::int64_t from_stride = 0;
    std::int64_t to_stride = 0;
    std::int64_t bytes = 0; ///< copied per row
};

/// Copy row `from` to row `to`, or write zeros if `from` is `zero_slot`.
struct SlotCopy {
    Slot from = 0;
    Slot to = 0;

    constexpr bool operator==(const SlotCopy&) const = default;
};

inline constexpr Slot zero_slot = -1;

} // namespace cellar
