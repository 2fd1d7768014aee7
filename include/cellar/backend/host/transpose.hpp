// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/simd/vector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The side of a square tile whose rows fill a vector register on every x86-64 and ARMv8 processor.
template <class E>
inline constexpr std::int64_t tile_rows = 16 / sizeof(E);

template <class E, std::size_t... I>
void transpose_tile(const E* from, std::int64_t from_stride, E* to, std::int64_t to_stride, std::index_sequence<I...>) {
    static_assert(sizeof(E) == 2 || sizeof(E) == 4);
    using Row = std::conditional_t<sizeof(E) == 2, simd::Shorts, simd::Words>;
    Row rows[sizeof...(I)];
    (std::memcpy(&rows[I], from + static_cast<std::int64_t>(I) * from_stride, sizeof(Row)), ...);
    simd::baseline::transpose<sizeof...(I)>(rows, std::make_index_sequence<sizeof...(I) / 2>{});
    (std::memcpy(to + static_cast<std::int64_t>(I) * to_stride, &rows[I], sizeof(Row)), ...);
}

/// to[k][i] = from[i][k], for i < rows and k < columns.
template <class E, std::size_t Rows, std::size_t Columns>
void transpose(const E (&from)[Rows][Columns], E (&to)[Columns][Rows], std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t n = tile_rows<E>;
    for (std::int64_t i = 0; i < rows; i += n) {
        for (std::int64_t k = 0; k < columns; k += n) {
            if (i + n <= rows && k + n <= columns) {
                transpose_tile(&from[i][k], Columns, &to[k][i], Rows, std::make_index_sequence<tile_rows<E>>{});
            } else {
                for (std::int64_t r = i; r < std::min(i + n, rows); ++r)
                    for (std::int64_t c = k; c < std::min(k + n, columns); ++c) to[c][r] = from[r][c];
            }
        }
    }
}

} // namespace cellar::detail
