// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/scratch.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/storage_format.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

// Rows [tokens, heads, dim] of values, and the factors [heads, dim] of their channels.

namespace cellar::detail {

/// Rows of `T` are values that the format encodes.
template <class T, class Format>
inline constexpr bool are_values = !Element<Format> && std::is_same_v<T, float> && !std::is_same_v<T, unit_of<Format>>;

/// So many tokens are divided at a time.
inline constexpr std::int64_t divided_tokens = 16;

/// Calls put(first, rows) for the rows of some tokens at a time, from `first` on, divided by the factors.
template <class Put>
void divide_rows(const StridedView<const float, 3>& rows, const float* factors, Scratch& memory, Put put) {
    const std::int64_t heads = rows.extent(1);
    const std::int64_t dim = rows.extent(2);
    const std::int64_t bytes = divided_tokens * heads * dim * std::int64_t{sizeof(float)};
    auto* const divided = reinterpret_cast<float*>(memory.reserve(bytes));
    for (std::int64_t first = 0; first < rows.extent(0); first += divided_tokens) {
        const std::int64_t count = std::min(divided_tokens, rows.extent(0) - first);
        float* to = divided;
        for (std::int64_t i = first; i < first + count; ++i)
            for (std::int64_t head = 0; head < heads; ++head)
                for (std::int64_t d = 0; d < dim; ++d) *to++ = rows(i, head, d) / factors[head * dim + d];
        put(first, contiguous_view(static_cast<const float*>(divided), count, heads, dim));
    }
}

inline void multiply_rows(const StridedView<float, 3>& rows, const float* factors) {
    for (std::int64_t i = 0; i < rows.extent(0); ++i)
        for (std::int64_t head = 0; head < rows.extent(1); ++head)
            for (std::int64_t d = 0; d < rows.extent(2); ++d) rows(i, head, d) *= factors[head * rows.extent(2) + d];
}

} // namespace cellar::detail
