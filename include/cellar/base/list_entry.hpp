// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace cellar {

/// A new value for one place of a list of indices.
struct ListEntry {
    std::uint32_t place = 0;
    std::int32_t value = 0;

    constexpr bool operator==(const ListEntry&) const = default;
};

/// Rows of a table of indices, which are to be contiguous in `to`. Row r has entries [indptr[r], indptr[r + 1])
/// there, and begins at table[starts[r]]. All pointers go to the memory of a backend.
struct ListRowsCopy {
    const std::int32_t* table = nullptr;
    const std::int32_t* starts = nullptr;
    const std::int32_t* indptr = nullptr;
    std::int32_t* to = nullptr;
    std::int32_t rows = 0;
};

} // namespace cellar
