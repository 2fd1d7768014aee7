// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/slot_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cellar::detail {

/// Bytes [first, first + n) of one row.
inline void copy_row(const SlotRows& rows, SlotCopy copy, std::int64_t first, std::int64_t n) {
    if (n == 0) return;
    std::byte* const to = rows.to + copy.to * rows.to_stride + first;
    if (copy.from == zero_slot) {
        std::memset(to, 0, static_cast<std::size_t>(n));
    } else {
        std::memcpy(to, rows.from + copy.from * rows.from_stride + first, static_cast<std::size_t>(n));
    }
}

} // namespace cellar::detail
