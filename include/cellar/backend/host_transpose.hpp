// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace cellar::detail {

/// Square tiles whose rows fill a vector register of every x86-64 and ARMv8 processor.
template <class E>
inline constexpr std::int64_t tile_rows = 16 / sizeof(E);

#if defined(__GNUC__) && !defined(__CUDACC__)

template <std::size_t ElementBytes>
struct TileRow;
template <>
struct TileRow<2> {
    using type = std::int16_t __attribute__((vector_size(16)));
};
template <>
struct TileRow<4> {
    using type = std::int32_t __attribute__((vector_size(16)));
};

// log2(n) times, rows i and i + n / 2 are interleaved to rows 2i and 2i + 1: that transposes n x n.
template <class Row, std::size_t... I>
void interleave(Row (&rows)[sizeof...(I)], std::index_sequence<I...>) {
    constexpr int n = sizeof...(I);
    for (int done = 1; done < n; done *= 2) {
        Row from[n];
        std::memcpy(from, rows, sizeof(rows));
        for (int i = 0; i < n / 2; ++i) {
            rows[2 * i] = __builtin_shufflevector(from[i], from[i + n / 2], (I / 2 + I % 2 * n)...);
            rows[2 * i + 1] = __builtin_shufflevector(from[i], from[i + n / 2], (n / 2 + I / 2 + I % 2 * n)...);
        }
    }
}

template <class E>
void transpose_tile(const E* from, std::int64_t from_stride, E* to, std::int64_t to_stride) {
    using Row = typename TileRow<sizeof(E)>::type;
    constexpr std::int64_t n = tile_rows<E>;
    Row rows[n];
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(Row));
    interleave(rows, std::make_index_sequence<n>{});
    for (std::int64_t k = 0; k < n; ++k) std::memcpy(to + k * to_stride, &rows[k], sizeof(Row));
}

#else

template <class E>
void transpose_tile(const E* from, std::int64_t from_stride, E* to, std::int64_t to_stride) {
    for (std::int64_t k = 0; k < tile_rows<E>; ++k)
        for (std::int64_t i = 0; i < tile_rows<E>; ++i) to[k * to_stride + i] = from[i * from_stride + k];
}

#endif

/// to[k][i] becomes from[i][k], for i < rows and k < columns.
template <class E, std::size_t Rows, std::size_t Columns>
void transpose(const E (&from)[Rows][Columns], E (&to)[Columns][Rows], std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t n = tile_rows<E>;
    for (std::int64_t i = 0; i < rows; i += n) {
        for (std::int64_t k = 0; k < columns; k += n) {
            if (i + n <= rows && k + n <= columns) {
                transpose_tile(&from[i][k], Columns, &to[k][i], Rows);
            } else {
                for (std::int64_t r = i; r < std::min(i + n, rows); ++r)
                    for (std::int64_t c = k; c < std::min(k + n, columns); ++c) to[c][r] = from[r][c];
            }
        }
    }
}

} // namespace cellar::detail
