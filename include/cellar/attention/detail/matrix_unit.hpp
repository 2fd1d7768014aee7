// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/tile.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>
#include <cellar/simd/amx.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cellar::detail {

/// A float has up to three pieces: see kernels_for_matrix_unit.hpp.
inline constexpr int max_pieces = 3;

/// How many pieces hold an element without a loss.
template <class E>
inline constexpr int pieces_of = std::is_same_v<E, bfloat16> ? 1
                                 : std::is_same_v<E, half>   ? 2
                                                             : max_pieces;

/// Kernels take two by two matrices at a time.
constexpr std::int64_t matrices_for(std::int64_t rows) {
    return (rows + 2 * matrix_rows - 1) / (2 * matrix_rows) * 2;
}
/// The steps of a sum of n products.
constexpr std::int64_t steps_of(std::int64_t n) {
    return (n + matrix_depth - 1) / matrix_depth;
}
constexpr std::int64_t split_bytes(std::int64_t rows, std::int64_t n, int pieces) {
    return pieces * matrices_for(rows) * steps_of(n) * matrix_bytes;
}

/// Rows that were split into pieces.
struct SplitRows {
    const std::byte* matrices;
    int pieces;
};

/// out [rows, width] = left [rows, n] * right [n, width], or += if `adds`. Width is a multiple of 16.
struct Product {
    std::int64_t rows;
    std::int64_t n;
    std::int64_t width;
    float* out;
    std::ptrdiff_t stride;
    bool adds;
};

/// The kernels of a matrix unit. Null where there is none.
struct MatrixKernels {
    bool (*split_left)(const float*, std::ptrdiff_t, int, std::int64_t, int, std::byte*) = nullptr;
    void (*multiply)(const SplitRows&, const SplitRows&, const Product&, const FetchedRows&) = nullptr;

    explicit operator bool() const { return multiply != nullptr; }
};

} // namespace cellar::detail
