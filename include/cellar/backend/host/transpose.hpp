// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace cellar::detail {

/// The side of a square tile whose rows fill a vector register on every x86-64 and ARMv8 processor.
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

/// Interleaves the first halves of two rows (`First` 0) or their second halves (`First` half a row).
template <int First, class Row, std::size_t... I>
Row zip(Row a, Row b, std::index_sequence<I...>) {
    constexpr int n = sizeof...(I);
    return __builtin_shufflevector(a, b, (First + static_cast<int>(I) / 2 + static_cast<int>(I) % 2 * n)...);
}

// Interleaving rows i and i + n / 2 into rows 2i and 2i + 1, log2(n) times, transposes n x n. Without loops, because
// -O2 does not unroll them, and the rows would lie in memory instead of registers.
template <int Done, class Row, std::size_t... I>
void interleave(Row (&rows)[sizeof...(I)], std::index_sequence<I...> all) {
    constexpr int n = sizeof...(I);
    if constexpr (Done < n) {
        const Row zipped[std::size_t{n}] = {
            zip<static_cast<int>(I) % 2 * n / 2>(rows[I / 2], rows[I / 2 + n / 2], all)...};
        ((rows[I] = zipped[I]), ...);
        interleave<Done * 2>(rows, all);
    }
}

template <class E, std::size_t... I>
void transpose_rows(const E* from, std::int64_t from_stride, E* to, std::int64_t to_stride,
                    std::index_sequence<I...> all) {
    using Row = typename TileRow<sizeof(E)>::type;
    Row rows[sizeof...(I)];
    (std::memcpy(&rows[I], from + static_cast<std::int64_t>(I) * from_stride, sizeof(Row)), ...);
    interleave<1>(rows, all);
    (std::memcpy(to + static_cast<std::int64_t>(I) * to_stride, &rows[I], sizeof(Row)), ...);
}

template <class E>
void transpose_tile(const E* from, std::int64_t from_stride, E* to, std::int64_t to_stride) {
    transpose_rows(from, from_stride, to, to_stride, std::make_index_sequence<tile_rows<E>>{});
}

#else

template <class E>
void transpose_tile(const E* from, std::int64_t from_stride, E* to, std::int64_t to_stride) {
    for (std::int64_t k = 0; k < tile_rows<E>; ++k)
        for (std::int64_t i = 0; i < tile_rows<E>; ++i) to[k * to_stride + i] = from[i * from_stride + k];
}

#endif

/// to[k][i] = from[i][k], for i < rows and k < columns.
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
