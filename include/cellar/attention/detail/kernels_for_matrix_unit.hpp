// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Products of packed rows by a matrix unit. Included once for each, by matrix_unit.hpp, which defines
//   CELLAR_KERNELS: the namespace,
//   CELLAR_MATRICES: the type of its registers,
//   CELLAR_TARGET: the attribute that makes the compiler use its instructions, whatever its flags.
// Without these macros the file is empty.
//
// A matrix unit multiplies matrices of bfloat16, and adds up floats. So each float becomes a sum of up to three numbers
// of bfloat16, its pieces. Three of them have all its 24 bits. Products of two pieces that are too small to count for a
// float are left out: at most 2^-24 of the product of the two floats. The unit takes numbers below 2^-126 as 0, so
// pieces of floats below 2^-102 may be lost.
#ifdef CELLAR_KERNELS

namespace cellar::detail::CELLAR_KERNELS {

#define CELLAR_INLINE [[CELLAR_TARGET gnu::always_inline]] inline
#define CELLAR_KERNEL [[CELLAR_TARGET gnu::noinline]] inline

using Matrices = CELLAR_MATRICES;
using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Unsigned = std::uint32_t __attribute__((vector_size(64)));

CELLAR_INLINE Floats load(const float* from) {
    Floats floats;
    std::memcpy(&floats, from, sizeof(floats));
    return floats;
}
CELLAR_INLINE void store(void* to, const Floats& floats) {
    std::memcpy(to, &floats, sizeof(floats));
}

// The largest magnitudes of some elements so far, as bits: those of a number that is not finite are the largest.
struct Largest {
    Ints bits{};
    CELLAR_INLINE void add(const Floats& x) {
        const auto magnitude = reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(x) & 0x7fffffffU);
        bits = magnitude > bits ? magnitude : bits;
    }
    CELLAR_INLINE bool is_moderate() const {
        constexpr std::int32_t limit = 0x5d800000; // 2^60: sums of products are below 2^128
        std::int32_t largest = 0;
        for (int i = 0; i < matrix_rows; ++i) largest = bits[i] > largest ? bits[i] : largest;
        return largest < limit;
    }
};

// Stores the pieces of two vectors as rows of pairs in matrices that follow one another. The last piece is what the
// others leave, which fits.
template <int Pieces>
CELLAR_INLINE void store_pieces(const Floats& first, const Floats& second, std::byte* to, Largest& largest) {
    Floats a = first;
    Floats b = second;
    largest.add(a);
    largest.add(b);
    for (int piece = 0; piece < Pieces; ++piece) {
        const std::uint32_t half_unit = piece + 1 < Pieces ? 0x8000 : 0; // rounds, away from zero in the middle
        const Unsigned upper_a = (reinterpret_cast<Unsigned>(a) + half_unit) & 0xffff0000U;
        const Unsigned upper_b = (reinterpret_cast<Unsigned>(b) + half_unit) & 0xffff0000U;
        store(to + piece * matrix_bytes, reinterpret_cast<Floats>(upper_a >> 16 | upper_b));
        a -= reinterpret_cast<Floats>(upper_a);
        b -= reinterpret_cast<Floats>(upper_b);
    }
}

template <int Pieces>
CELLAR_INLINE bool split_left_into(const float* left, std::ptrdiff_t stride, int rows, std::int64_t n, std::byte* out) {
    const std::int64_t bytes = steps_of(n) * Pieces * matrix_bytes; // of 16 rows
    Largest largest;
    for (int r = 0; r < rows; ++r) {
        const float* const row = left + r * stride;
        std::byte* to = out + r / matrix_rows * bytes + r % matrix_rows * line_bytes;
        for (std::int64_t k = 0; k < n; k += matrix_depth, to += Pieces * matrix_bytes)
            store_pieces<Pieces>(load(row + k), k + matrix_rows < n ? load(row + k + matrix_rows) : Floats{}, to,
                                 largest);
    }
    return largest.is_moderate();
}

/// The pieces of left [rows, n], as matrices [rows / 16, steps, pieces]. Elements are read up to a multiple of 16.
/// Returns false if the magnitude of one is not below 2^60.
CELLAR_KERNEL bool split_left(const float* left, std::ptrdiff_t stride, int rows, std::int64_t n, int pieces,
                              std::byte* out) {
    if (pieces == 1) return split_left_into<1>(left, stride, rows, n, out);
    if (pieces == 2) return split_left_into<2>(left, stride, rows, n, out);
    return split_left_into<3>(left, stride, rows, n, out);
}

template <int Pieces>
CELLAR_INLINE bool split_right_into(const float* right, std::int64_t n, std::int64_t width, std::byte* out) {
    const std::int64_t steps = steps_of(n);
    Largest largest;
    for (std::int64_t step = 0; step < steps; ++step)
        for (std::int64_t r = 0; r < matrix_rows; ++r) {
            const std::int64_t k = step * matrix_depth + r;
            const float* const first = right + k * width;
            const float* const second = first + matrix_rows * width;
            std::byte* to = out + step * Pieces * matrix_bytes + r * line_bytes;
            for (std::int64_t c = 0; c < width; c += matrix_rows, to += steps * Pieces * matrix_bytes)
                store_pieces<Pieces>(k < n ? load(first + c) : Floats{},
                                     k + matrix_rows < n ? load(second + c) : Floats{}, to, largest);
        }
    return largest.is_moderate();
}

/// The one or two pieces of right [n, width], as matrices [width / 16, steps, pieces]. Returns as split_left.
CELLAR_KERNEL bool split_right(const float* right, std::int64_t n, std::int64_t width, int pieces, std::byte* out) {
    if (pieces == 1) return split_right_into<1>(right, n, width, out);
    return split_right_into<2>(right, n, width, out);
}

// Adds the products of two by two matrices, of which the second ones lie `next_row` and `next_column` bytes behind the
// first. The pieces of each follow one another.
template <int Left, int Right>
CELLAR_INLINE void add_step(const std::byte* left, const std::byte* right, std::ptrdiff_t next_row,
                            std::ptrdiff_t next_column, LinesToPack& ahead) {
    for (int r = Right - 1; r >= 0; --r) {
        Matrices::load<6>(right + r * matrix_bytes);
        Matrices::load<7>(right + r * matrix_bytes + next_column);
        // The smallest products first, so that less of them is lost.
        for (int l = std::min(Left, max_pieces - r) - 1; l >= 0; --l) {
            ahead.step();
            Matrices::load<4>(left + l * matrix_bytes);
            Matrices::multiply<0, 4, 6>();
            Matrices::multiply<1, 4, 7>();
            Matrices::load<5>(left + l * matrix_bytes + next_row);
            Matrices::multiply<2, 5, 6>();
            Matrices::multiply<3, 5, 7>();
        }
    }
}

// Adds a matrix to `rows` rows of out, at most 16, or stores it there.
template <int Matrix>
CELLAR_INLINE void add_matrix(std::int64_t rows, bool adds, float* out, std::ptrdiff_t stride) {
    alignas(64) float sums[matrix_rows * matrix_rows];
    Matrices::store<Matrix>(sums);
    for (int r = 0; r < rows && r < matrix_rows; ++r) {
        const Floats sum = load(sums + r * matrix_rows);
        store(out + r * stride, adds ? load(out + r * stride) + sum : sum);
    }
}

template <int Left, int Right>
CELLAR_KERNEL void multiply_pieces(const std::byte* left, const std::byte* right, const Product& p,
                                   const FetchedRows& next) {
    const std::int64_t steps = steps_of(p.n);
    const std::ptrdiff_t row = steps * Left * matrix_bytes; // of matrices
    const std::ptrdiff_t column = steps * Right * matrix_bytes;
    constexpr int products = Right == 1 ? Left : Left + std::min(Left, max_pieces - 1); // of pieces
    LinesToPack ahead{next, matrices_for(p.rows) * matrices_for(p.width) / 4 * steps * products};
    Matrices::start();
    for (std::int64_t r = 0; r < p.rows; r += 2 * matrix_rows)
        for (std::int64_t c = 0; c < p.width; c += 2 * matrix_rows) {
            Matrices::zero<0>();
            Matrices::zero<1>();
            Matrices::zero<2>();
            Matrices::zero<3>();
            const std::byte* const first = left + r / matrix_rows * row;
            const std::byte* const second = right + c / matrix_rows * column;
            for (std::int64_t k = 0; k < steps; ++k)
                add_step<Left, Right>(first + k * Left * matrix_bytes, second + k * Right * matrix_bytes, row, column,
                                      ahead);
            float* const to = p.out + r * p.stride + c;
            float* const below = to + matrix_rows * p.stride;
            add_matrix<0>(p.rows - r, p.adds, to, p.stride);
            add_matrix<2>(p.rows - r - matrix_rows, p.adds, below, p.stride);
            if (p.width - c <= matrix_rows) continue;
            add_matrix<1>(p.rows - r, p.adds, to + matrix_rows, p.stride);
            add_matrix<3>(p.rows - r - matrix_rows, p.adds, below + matrix_rows, p.stride);
        }
    Matrices::stop();
}

/// See Product. The right side has one or two pieces.
CELLAR_KERNEL void multiply_split(const SplitRows& left, const SplitRows& right, const Product& product,
                                  const FetchedRows& next) {
    constexpr decltype(&multiply_pieces<1, 1>) kernels[max_pieces][2] = {
        {multiply_pieces<1, 1>, multiply_pieces<1, 2>},
        {multiply_pieces<2, 1>, multiply_pieces<2, 2>},
        {multiply_pieces<3, 1>, multiply_pieces<3, 2>}};
    kernels[left.pieces - 1][right.pieces - 1](left.matrices, right.matrices, product, next);
}

#undef CELLAR_INLINE
#undef CELLAR_KERNEL

} // namespace cellar::detail::CELLAR_KERNELS

#endif
