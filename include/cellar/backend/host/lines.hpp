// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/slot_copy.hpp>
#include <cellar/simd/convert.hpp>
#include <cellar/simd/lines.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cellar::detail {

/// `stream_run`, or a conversion.
template <class From, class To>
void stream(const From* from, To* to, std::int64_t n, const From* ahead = nullptr) {
    if constexpr (std::is_same_v<From, To>) {
        stream_run(from, to, n, ahead);
    } else {
        if (ahead != nullptr) prefetch<CacheLevel::second>(ahead, n);
        convert_run(from, to, n);
    }
}

/// Copies bytes [first, first + n) of a slot's row.
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
