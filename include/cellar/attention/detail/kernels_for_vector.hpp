// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The products of attention for one set of instructions, with its softmax and rotations at the end. Included once for
// each, by tile_kernels.hpp, with the macros of simd/operations.hpp. Without these, which it undefines at its end, the
// file is empty.
#ifdef CELLAR_KERNELS

#include <cellar/simd/operations.hpp>

namespace cellar::detail::CELLAR_KERNELS {

#define CELLAR_INLINE [[CELLAR_TARGET gnu::always_inline]] inline
#define CELLAR_KERNEL [[CELLAR_TARGET gnu::noinline]] inline

// The end of a row: rows are multiples of row_unit long.
template <class E, class V = Vector>
CELLAR_INLINE Floats load_end(const E* from) {
    if constexpr (V::lanes > row_unit) {
        static_assert(V::lanes == 2 * row_unit && row_unit == 8);
        return V::load_eight(from);
    } else {
        return load(from);
    }
}
template <bool IsWhole, class E>
CELLAR_INLINE Floats load_row(const E* from) {
    if constexpr (IsWhole) return load(from);
    return load_end(from);
}

template <std::size_t First, std::size_t... C>
CELLAR_INLINE void add_products(Floats x, const Floats* k, Floats* sums, std::index_sequence<C...>) {
    ((sums[First + C] += x * k[C]), ...);
}

// For cells First, First + 1, ... of Cells.
template <std::size_t Cells, std::size_t First, bool IsWhole, class E, std::size_t... Row, std::size_t... C>
CELLAR_INLINE void dot_step(const float* q, std::ptrdiff_t stride, std::int64_t d, HeadRows<E> keys, Floats* sums,
                            std::index_sequence<Row...>, std::index_sequence<C...> cells) {
    const Floats k[sizeof...(C)] = {load_row<IsWhole>(keys[First + C] + d)...};
    (add_products<Row * Cells + First>(Vector::in_register(load(q + std::ptrdiff_t{Row} * stride + d)), k, sums, cells),
     ...);
}
template <std::size_t Cells, std::size_t First, class E, class Rows, class Together, std::size_t... Step>
CELLAR_INLINE void dot_steps(const float* q, std::ptrdiff_t stride, std::int64_t d, HeadRows<E> keys, Floats* sums,
                             Rows rows, Together together, std::index_sequence<Step...>) {
    (dot_step<Cells, First, true>(q, stride, d + std::int64_t{Step * lanes}, keys, sums, rows, together), ...);
}

template <std::size_t R, std::size_t Cells, std::size_t First, std::size_t Together, class E>
CELLAR_INLINE void dot_some(const float* q, std::ptrdiff_t stride, std::int64_t dim, HeadRows<E> keys,
                            RowsAhead<E>& ahead, Floats* sums) {
    constexpr std::make_index_sequence<R> rows;
    constexpr std::make_index_sequence<Together> together;
    // What a step reads of the keys. So many steps are taken together that they read whole lines, and prefetch as many.
    constexpr std::size_t bytes = Together * lanes * sizeof(E);
    constexpr std::size_t steps = bytes < line_bytes ? line_bytes / bytes : 1;
    constexpr std::int64_t wide = steps * lanes;
    std::int64_t d = 0;
    for (; d + wide <= dim; d += wide) {
        ahead.template prefetch_lines<steps * bytes / line_bytes>();
        dot_steps<Cells, First>(q, stride, d, keys, sums, rows, together, std::make_index_sequence<steps>{});
    }
    for (; d + lanes <= dim; d += lanes) dot_step<Cells, First, true>(q, stride, d, keys, sums, rows, together);
    if constexpr (lanes > row_unit)
        if (d < dim) dot_step<Cells, First, false>(q, stride, d, keys, sums, rows, together);
}

// Few cells at a time, because the processor's own prefetcher follows few rows; but at least eight sums, because a sum
// waits for the one before. Four rows take more cells together, so that their elements are loaded less often.
template <std::size_t R, class E>
CELLAR_INLINE void dot_cells(const float* q, std::ptrdiff_t stride, std::int64_t dim, HeadRows<E> keys,
                             HeadRows<E> next, float* scores) {
    constexpr std::size_t cells = std::size_t{lanes} / R;
    Floats sums[std::size_t{lanes}] = {};
    RowsAhead<E> ahead{next, dim};
    if constexpr (lanes > 8 && R < 4) {
        dot_some<R, cells, 0, cells / 2>(q, stride, dim, keys, ahead, sums);
        dot_some<R, cells, cells / 2, cells / 2>(q, stride, dim, keys, ahead, sums);
    } else {
        dot_some<R, cells, 0, cells>(q, stride, dim, keys, ahead, sums);
    }
    sum_lanes(sums, std::make_index_sequence<std::size_t{lanes} / 2>{});
    float out[std::size_t{lanes}];
    store(out, sums[0]);
    for (std::size_t r = 0; r < R; ++r) std::memcpy(scores + r * tile_cells, out + r * cells, cells * sizeof(float));
}

template <std::size_t R, class E>
CELLAR_KERNEL void dot_rows(const float* q, std::ptrdiff_t stride, std::int64_t dim, HeadRows<E> keys, HeadRows<E> next,
                            int cells, float* scores) {
    constexpr int step = lanes / int{R};
    for (int c = 0; c < cells; c += step) dot_cells<R>(q, stride, dim, keys + c, next + c, scores + c);
}

/// scores [rows, tile_cells] = q [rows, dim] * keys. Behind dim, q has zeros up to a multiple of dim_unit. `rows` is 1,
/// 2 or a multiple of 4; `keys` has pointers for tile_cells cells, of which the last ones may repeat. `next`: as many
/// rows that will be read later.
template <class E>
CELLAR_KERNEL void dot(const float* q, std::ptrdiff_t stride, int rows, std::int64_t dim, HeadRows<E> keys,
                       HeadRows<E> next, int cells, float* scores) {
    if (rows == 1) return dot_rows<1>(q, stride, dim, keys, next, cells, scores);
    if (rows == 2) return dot_rows<2>(q, stride, dim, keys, next, cells, scores);
    for (int r = 0; r < rows; r += 4)
        dot_rows<4>(q + r * stride, stride, dim, keys, r == 0 ? next : keys, cells,
                    scores + std::ptrdiff_t{r} * tile_cells);
}

template <class Right, std::size_t... Column, std::size_t... I>
CELLAR_INLINE void add_step(const float* left, std::ptrdiff_t left_stride, std::int64_t k, const Right& right,
                            Floats* sums, std::index_sequence<Column...>, std::index_sequence<I...>) {
    constexpr std::size_t vectors = sizeof...(Column);
    const auto* const row = right(k);
    const Floats b[vectors] = {load_row<Right::is_whole>(row + std::ptrdiff_t{Column} * lanes)...};
    ((sums[I] += broadcast(left[std::ptrdiff_t{I / vectors} * left_stride + k]) * b[I % vectors]), ...);
}
template <class Right, class Vectors, class All, int... Step>
CELLAR_INLINE void add_steps(const float* left, std::ptrdiff_t left_stride, std::int64_t k, const Right& right,
                             Floats* sums, Vectors vectors, All all, std::integer_sequence<int, Step...>) {
    (add_step(left, left_stride, k + Step, right, sums, vectors, all), ...);
}

// For each row r and vector c, out += the sum over k of left[r, k] * right[k, c].
template <std::size_t R, class Right, std::size_t... Column, std::size_t... I>
CELLAR_INLINE void add_block(const float* left, std::ptrdiff_t left_stride, std::int64_t n, Right right, float* out,
                             std::ptrdiff_t out_stride, std::index_sequence<Column...> vectors,
                             std::index_sequence<I...> all) {
    constexpr std::size_t cols = sizeof...(Column);
    constexpr int steps = Right::steps_together;
    Floats sums[R * cols] = {load(out + std::ptrdiff_t{I / cols} * out_stride + std::ptrdiff_t{I % cols} * lanes)...};
    std::int64_t k = 0;
    for (; k + steps <= n; k += steps) {
        right.template prefetch_next<cols * lanes>();
        add_steps(left, left_stride, k, right, sums, vectors, all, std::make_integer_sequence<int, steps>{});
    }
    if constexpr (steps > 1) {
        if (k < n) right.template prefetch_next<cols * lanes>();
        for (; k < n; ++k) add_step(left, left_stride, k, right, sums, vectors, all);
    }
    (store(out + std::ptrdiff_t{I / cols} * out_stride + std::ptrdiff_t{I % cols} * lanes, sums[I]), ...);
}

// A block of sums that registers hold: rows by vectors.
inline constexpr int packed_rows = lanes == 8 ? 6 : 4;
inline constexpr int columns = lanes == 16 ? 4 : 2;

template <class E, bool IsWhole>
struct PointedRows {
    static constexpr bool is_whole = IsWhole;
    static constexpr int max_rows = 4; // the heads of a group, most often
    // Between prefetches of whole lines: two vectors of each step make one of them at least.
    static constexpr int steps_together = lanes * sizeof(E) < 16 ? 6 : 3;
    HeadRows<E> rows;
    std::int64_t column;
    RowsAhead<E> ahead;
    CELLAR_INLINE const E* operator()(std::int64_t k) const { return rows[k] + column; }
    /// As much as the steps read, of N elements each, less what the softmax has fetched.
    template <std::size_t N>
    CELLAR_INLINE void prefetch_next() {
        constexpr std::size_t bytes = steps_together * N * sizeof(E) * (16 - softmax_share) / 16;
        if constexpr (IsWhole) ahead.template prefetch_lines<bytes / line_bytes>();
    }
};
struct PackedRows {
    static constexpr bool is_whole = true;
    static constexpr int max_rows = packed_rows;
    static constexpr int steps_together = 1;
    const float* first;
    std::ptrdiff_t stride;
    LinesToPack* ahead;
    CELLAR_INLINE const float* operator()(std::int64_t k) const { return first + k * stride; }
    template <std::size_t>
    CELLAR_INLINE void prefetch_next() const {
        ahead->step();
    }
};

// add_block for R rows from row r on, with 4 vectors, 2 or 1.
template <std::size_t R, class Right>
CELLAR_INLINE void add_columns(const float* left, std::ptrdiff_t left_stride, int r, std::int64_t n, Right right,
                               int vectors, float* out, std::ptrdiff_t out_stride) {
    left += r * left_stride;
    out += r * out_stride;
    if constexpr (Right::is_whole && columns == 4)
        if (vectors == 4)
            return add_block<R>(left, left_stride, n, right, out, out_stride, std::make_index_sequence<4>{},
                                std::make_index_sequence<R * 4>{});
    if constexpr (Right::is_whole)
        if (vectors == 2)
            return add_block<R>(left, left_stride, n, right, out, out_stride, std::make_index_sequence<2>{},
                                std::make_index_sequence<R * 2>{});
    add_block<R>(left, left_stride, n, right, out, out_stride, std::make_index_sequence<1>{},
                 std::make_index_sequence<R>{});
}
template <class Right>
CELLAR_KERNEL void add_rows(const float* left, std::ptrdiff_t left_stride, int rows, std::int64_t n, Right right,
                            int vectors, float* out, std::ptrdiff_t out_stride) {
    int r = 0;
    constexpr int most = Right::max_rows;
    for (; r + most <= rows; r += most) add_columns<most>(left, left_stride, r, n, right, vectors, out, out_stride);
    for (; r + 4 <= rows; r += 4) add_columns<4>(left, left_stride, r, n, right, vectors, out, out_stride);
    for (; r + 2 <= rows; r += 2) add_columns<2>(left, left_stride, r, n, right, vectors, out, out_stride);
    if (r < rows) add_columns<1>(left, left_stride, r, n, right, vectors, out, out_stride);
}

constexpr int vectors_for(std::int64_t rest) {
    int vectors = columns;
    while (std::int64_t{vectors} * lanes > rest) vectors /= 2;
    return vectors;
}

// The steps of a product [rows, n] * [n, width] of packed rows, at least.
constexpr std::int64_t steps_of(std::int64_t rows, std::int64_t width, std::int64_t n) {
    constexpr std::int64_t wide = std::int64_t{columns} * lanes;
    return (rows + packed_rows - 1) / packed_rows * ((width + wide - 1) / wide) * n;
}

/// out [rows, dim] += weights [rows, tile_cells] * values. Behind dim, out has room up to a multiple of dim_unit.
/// `next`: as many rows that will be read later, of which the softmax has fetched the first ones.
template <class E>
CELLAR_KERNEL void add_values(const float* weights, int rows, int cells, HeadRows<E> values, HeadRows<E> next,
                              std::int64_t dim, float* out, std::ptrdiff_t out_stride) {
    const int fetched = fetched_by_softmax(cells);
    std::int64_t d = 0;
    while (d + lanes <= dim) {
        const int vectors = vectors_for(dim - d);
        const std::int64_t done = d * (cells - fetched); // elements that the columns before have fetched
        const RowsAhead<E> ahead{next + (fetched + done / dim), dim, done % dim};
        add_rows(weights, tile_cells, rows, cells, PointedRows<E, true>{values, d, ahead}, vectors, out + d,
                 out_stride);
        d += std::int64_t{vectors} * lanes;
    }
    if constexpr (lanes > row_unit)
        if (d < dim)
            add_rows(weights, tile_cells, rows, cells, PointedRows<E, false>{values, d, {next, dim}}, 1, out + d,
                     out_stride);
}

/// The same with values [cells, dim] that are packed.
CELLAR_KERNEL void add_packed_values(const float* weights, int rows, int cells, const float* values, std::int64_t dim,
                                     float* out, std::ptrdiff_t out_stride, const FetchedRows& next) {
    LinesToPack ahead{next, steps_of(rows, dim, cells)};
    for (std::int64_t d = 0; d < dim;) {
        const int vectors = vectors_for(dim - d);
        add_rows(weights, tile_cells, rows, cells, PackedRows{values + d, dim, &ahead}, vectors, out + d, out_stride);
        d += std::int64_t{vectors} * lanes;
    }
}

/// scores [rows, tile_cells] = q [rows, dim] * keys [dim, tile_cells], of which the first `cells` columns count.
CELLAR_KERNEL void multiply(const float* q, std::ptrdiff_t stride, int rows, std::int64_t dim, const float* keys,
                            int cells, float* scores, const FetchedRows& next) {
    std::memset(scores, 0, sizeof(float) * static_cast<std::size_t>(rows) * tile_cells);
    constexpr int wide = columns * lanes;
    LinesToPack ahead{next, steps_of(rows, cells, dim)};
    for (int c = 0; c < cells; c += wide)
        add_rows(q, stride, rows, dim, PackedRows{keys + c, tile_cells, &ahead}, columns, scores + c, tile_cells);
}

template <class E>
CELLAR_INLINE Floats load_within(const E* row, std::int64_t d, std::int64_t dim) {
    return d + lanes <= dim ? load(row + d) : load_end(row + d);
}

template <class E, std::size_t... I>
CELLAR_INLINE void transpose_cells(HeadRows<E> rows, int cells, std::int64_t dim, float* out,
                                   std::index_sequence<I...>) {
    std::int64_t d = 0;
    for (; d < dim; d += lanes) {
        Floats v[std::size_t{lanes}] = {(static_cast<int>(I) < cells ? load_within(rows[I], d, dim) : Floats{})...};
        transpose<lanes>(v, std::make_index_sequence<std::size_t{lanes} / 2>{});
        (store(out + (d + std::int64_t{I}) * tile_cells, v[I]), ...);
    }
    for (; d < padded_dim(dim); ++d) store(out + d * tile_cells, Floats{}); // zeros of queries do not hide a NaN
}

/// out [dim, tile_cells] = the rows of the cells, transposed; zeros after them, and after dim up to a multiple of
/// dim_unit.
template <class E>
CELLAR_KERNEL void pack_keys(HeadRows<E> rows, int cells, std::int64_t dim, float* out) {
    for (int c = 0; c < tile_cells; c += lanes) transpose_cells(rows + c, cells - c, dim, out + c, Lanes{});
}

/// out [cells, padded_dim(dim)] = the rows, with zeros after them. Returns false if an element is infinite or not a
/// number.
template <class E>
CELLAR_KERNEL bool pack_values(HeadRows<E> rows, int cells, std::int64_t dim, float* out) {
    constexpr std::int32_t exponent = 0x7f800000; // all ones: infinite or not a number
    Ints bad = {};
    for (int c = 0; c < cells; ++c) {
        float* const to = out + c * padded_dim(dim);
        std::int64_t d = 0;
        for (; d < dim; d += lanes) {
            const Floats x = load_within(rows[c], d, dim);
            bad |= (reinterpret_cast<Ints>(x) & exponent) == exponent;
            store(to + d, x);
        }
        for (; d < padded_dim(dim); d += lanes) store(to + d, Floats{});
    }
    bool finite = true;
    for (int i = 0; i < lanes; ++i) finite = finite && bad[i] == 0;
    return finite;
}

} // namespace cellar::detail::CELLAR_KERNELS

#include <cellar/attention/detail/rotation_for_vector.hpp>
#include <cellar/attention/detail/softmax_for_vector.hpp>

namespace cellar::detail::CELLAR_KERNELS {

/// All of them.
struct VectorKernels {
    template <class E>
    static RowKernels<E> rows() {
        if constexpr (requires(const E* row) { Vector::load(row); }) {
            return {dot<E>, add_values<E>, pack_keys<E>, pack_values<E>};
        } else {
            return {};
        }
    }
    static FloatKernels floats(const RowKernels<float>& rows) { return {rows, multiply, add_packed_values, softmax}; }
    static RotationKernels rotation() { return {add_angles, rotate_rows}; }
};

} // namespace cellar::detail::CELLAR_KERNELS

#undef CELLAR_INLINE
#undef CELLAR_KERNEL

#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

#endif
