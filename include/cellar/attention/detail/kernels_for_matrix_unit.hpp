// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Products by a matrix unit. Included once for each, by tile_kernels.hpp, which defines
//   CELLAR_KERNELS: the namespace,
//   CELLAR_MATRICES: the type of its registers,
//   CELLAR_VECTORS: the namespace of the kernels for vectors of 16 floats, see kernels_for_vector.hpp,
//   CELLAR_TARGET: the attribute that makes the compiler use its instructions, whatever its flags.
// Without these macros, which it undefines at its end, the file is empty.
//
// A matrix unit multiplies matrices of bfloat16, and adds up floats. So each float becomes a sum of up to three numbers
// of bfloat16, its pieces. Three of them have all its 24 bits. Products of two pieces that are too small to count for a
// float are left out: at most 2^-24 of the product of the two floats. The unit takes numbers below 2^-126 as 0, so
// pieces of floats below 2^-102 may be lost.
#ifdef CELLAR_KERNELS

namespace cellar::detail::CELLAR_KERNELS {

#define CELLAR_INLINE [[CELLAR_TARGET gnu::always_inline]] inline
#define CELLAR_KERNEL [[CELLAR_TARGET gnu::noinline]] inline

namespace vectors = CELLAR_VECTORS;
static_assert(vectors::lanes == matrix_rows);

using Matrices = CELLAR_MATRICES;
using Floats = vectors::Floats;
using Pairs = vectors::Unsigned; // each of two numbers of bfloat16

CELLAR_INLINE void store(void* to, const Pairs& pairs) {
    std::memcpy(to, &pairs, sizeof(pairs));
}

// The largest magnitudes of some elements so far, cut to bfloat16. Those of numbers that are not finite are the largest
// of all.
struct Largest {
    using Words = std::int16_t __attribute__((vector_size(64)));
    Words words{};
    CELLAR_INLINE void add(const Pairs& pairs) {
        const auto magnitudes = reinterpret_cast<Words>(pairs & 0x7fff7fffU);
        words = magnitudes > words ? magnitudes : words;
    }
    CELLAR_INLINE bool is_moderate() const {
        constexpr std::int16_t limit = 0x5d80; // 2^60: products are below 2^120
        std::int16_t largest = 0;
        for (int i = 0; i < 2 * matrix_rows; ++i) largest = words[i] > largest ? words[i] : largest;
        return largest < limit;
    }
};

CELLAR_INLINE Pairs pairs_of(const Pairs& a, const Pairs& b) {
    return a >> 16 | (b & 0xffff0000U);
}

// The pieces of two vectors, as pairs. The last piece is what the others leave, which fits.
template <int Pieces>
CELLAR_INLINE void split(Floats a, Floats b, Pairs* pieces, Largest& largest) {
    const Pairs cut = pairs_of(reinterpret_cast<Pairs>(a), reinterpret_cast<Pairs>(b));
    largest.add(cut);
    for (int piece = 0; piece + 1 < Pieces; ++piece) {
        // Rounds, away from zero in the middle.
        const Pairs upper_a = (reinterpret_cast<Pairs>(a) + 0x8000U) & 0xffff0000U;
        const Pairs upper_b = (reinterpret_cast<Pairs>(b) + 0x8000U) & 0xffff0000U;
        pieces[piece] = pairs_of(upper_a, upper_b);
        a -= reinterpret_cast<Floats>(upper_a);
        b -= reinterpret_cast<Floats>(upper_b);
    }
    pieces[Pieces - 1] = Pieces == 1 ? cut : pairs_of(reinterpret_cast<Pairs>(a), reinterpret_cast<Pairs>(b));
}

template <int Pieces>
CELLAR_INLINE bool split_left_into(const float* left, std::ptrdiff_t stride, int rows, std::int64_t n, std::byte* out) {
    const std::int64_t bytes = steps_of(n) * Pieces * matrix_bytes; // of 16 rows
    Largest largest;
    for (int r = 0; r < rows; ++r) {
        const float* const row = left + r * stride;
        std::byte* to = out + r / matrix_rows * bytes + r % matrix_rows * line_bytes;
        for (std::int64_t k = 0; k < n; k += matrix_depth, to += Pieces * matrix_bytes) {
            Pairs pieces[std::size_t{Pieces}];
            split<Pieces>(vectors::load(row + k), k + matrix_rows < n ? vectors::load(row + k + matrix_rows) : Floats{},
                          pieces, largest);
            for (int piece = 0; piece < Pieces; ++piece) store(to + piece * matrix_bytes, pieces[piece]);
        }
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

// Elements d to d + 32 of a row.
template <class E>
CELLAR_INLINE void split_row(const E* row, std::int64_t d, std::int64_t dim, Pairs* pieces, Largest& largest) {
    const std::int64_t second = d + matrix_rows;
    split<pieces_of<E>>(vectors::load_within(row, d, dim),
                        second < dim ? vectors::load_within(row, second, dim) : Floats{}, pieces, largest);
}

template <class E, std::size_t... Cell>
CELLAR_INLINE void split_cells(HeadRows<E> rows, std::int64_t d, std::int64_t dim, std::byte* out, Largest& largest,
                               std::index_sequence<Cell...>) {
    constexpr int n = pieces_of<E>;
    Pairs pieces[sizeof...(Cell)][std::size_t{n}];
    (split_row(rows[Cell], d, dim, pieces[Cell], largest), ...);
    for (int piece = 0; piece < n; ++piece, out += matrix_bytes) {
        Floats v[sizeof...(Cell)] = {reinterpret_cast<Floats>(pieces[Cell][piece])...};
        vectors::transpose<vectors::lanes>(v, std::make_index_sequence<sizeof...(Cell) / 2>{});
        (store(out + Cell * line_bytes, reinterpret_cast<Pairs>(v[Cell])), ...);
    }
}

/// The pieces of the rows of keys, transposed: right [dim, cells], as matrices [cells / 16, steps, pieces]. `rows` has
/// pointers for tile_cells cells, of which the last ones may repeat. Returns as split_left.
template <class E>
CELLAR_KERNEL bool split_keys(HeadRows<E> rows, int cells, std::int64_t dim, std::byte* out) {
    Largest largest;
    for (int c = 0; c < cells; c += matrix_rows)
        for (std::int64_t d = 0; d < dim; d += matrix_depth, out += pieces_of<E> * matrix_bytes)
            split_cells(rows + c, d, dim, out, largest, vectors::Lanes{});
    return largest.is_moderate();
}

/// The pieces of the rows of values: right [cells, dim], as matrices [dim / 16, steps, pieces]. `rows` and what it
/// returns: as for split_keys.
template <class E>
CELLAR_KERNEL bool split_values(HeadRows<E> rows, int cells, std::int64_t dim, std::byte* out) {
    constexpr int n = pieces_of<E>;
    const std::int64_t steps = steps_of(cells);
    Largest largest;
    for (std::int64_t step = 0; step < steps; ++step)
        for (std::int64_t r = 0; r < matrix_rows; ++r) {
            const std::int64_t cell = step * matrix_depth + r;
            std::byte* to = out + step * n * matrix_bytes + r * line_bytes;
            for (std::int64_t d = 0; d < dim; d += matrix_rows, to += steps * n * matrix_bytes) {
                Pairs pieces[std::size_t{n}];
                split<n>(vectors::load_within(rows[cell], d, dim),
                         vectors::load_within(rows[cell + matrix_rows], d, dim), pieces, largest);
                for (int piece = 0; piece < n; ++piece) store(to + piece * matrix_bytes, pieces[piece]);
            }
        }
    return largest.is_moderate();
}

// Adds the products of two by two matrices, of which the second ones lie `next_row` and `next_column` bytes after the
// first. The pieces of each are adjacent.
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
        const Floats sum = vectors::load(sums + r * matrix_rows);
        vectors::store(out + r * stride, adds ? vectors::load(out + r * stride) + sum : sum);
    }
}

// Of the pieces of two numbers.
constexpr int products_of(int left, int right) {
    int products = 0;
    for (int r = 0; r < right; ++r) products += std::min(left, max_pieces - r);
    return products;
}

template <int Left, int Right>
CELLAR_KERNEL void multiply_pieces(const std::byte* left, const std::byte* right, const Product& p,
                                   const FetchedRows& next) {
    const std::int64_t steps = steps_of(p.n);
    const std::ptrdiff_t row = steps * Left * matrix_bytes; // of matrices
    const std::ptrdiff_t column = steps * Right * matrix_bytes;
    constexpr int products = products_of(Left, Right);
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

/// See Product.
CELLAR_KERNEL void multiply_split(const SplitRows& left, const SplitRows& right, const Product& product,
                                  const FetchedRows& next) {
    constexpr decltype(&multiply_pieces<1, 1>) kernels[max_pieces][max_pieces] = {
        {multiply_pieces<1, 1>, multiply_pieces<1, 2>, multiply_pieces<1, 3>},
        {multiply_pieces<2, 1>, multiply_pieces<2, 2>, multiply_pieces<2, 3>},
        {multiply_pieces<3, 1>, multiply_pieces<3, 2>, multiply_pieces<3, 3>}};
    kernels[left.pieces - 1][right.pieces - 1](left.matrices, right.matrices, product, next);
}

#undef CELLAR_INLINE
#undef CELLAR_KERNEL

} // namespace cellar::detail::CELLAR_KERNELS

#undef CELLAR_KERNELS
#undef CELLAR_MATRICES
#undef CELLAR_VECTORS
#undef CELLAR_TARGET

#endif
