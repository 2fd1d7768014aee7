// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The products of attention with keys and values that are stored in units: these are unpacked to codes, a tile of one
// head at a time, and multiplied as they are. Included once for each set of instructions, by code_kernels.hpp, with
//   CELLAR_KERNELS: the namespace,
//   CELLAR_VECTORS: the namespace of the kernels for vectors, see kernels_for_vector.hpp,
//   CELLAR_SUMS: the same, for the vectors of the sums of products,
//   CELLAR_PRODUCTS: the type of the products, see byte_products.hpp,
//   CELLAR_LEVELS: the type that looks up codes of 4 bits, see levels.hpp,
//   CELLAR_COLUMNS: defined if these multiply columns of cells, see kernels_for_columns.hpp,
//   CELLAR_TARGET: the attribute that makes the compiler use these instructions, whatever its flags, and a comma.
// Without these macros, which it undefines at its end, the file is empty.
#ifdef CELLAR_KERNELS

namespace cellar::detail::CELLAR_KERNELS {

#define CELLAR_INLINE [[CELLAR_TARGET gnu::always_inline]] inline
#define CELLAR_KERNEL [[CELLAR_TARGET gnu::noinline]] inline

namespace vectors = CELLAR_VECTORS;
namespace sums = CELLAR_SUMS;
using Products = CELLAR_PRODUCTS;
using Floats = vectors::Floats;
using vectors::broadcast;
using vectors::lanes;
using vectors::load;
using vectors::store;

/// Unpacks one head of some cells: codes [cells, stride], with zeros after dim, and factors and offsets [groups,
/// tile_cells]. `scales`: null without a second plane.
template <class Format, class Code, class Factor>
[[ CELLAR_TARGET gnu::noinline, gnu::flatten ]] inline void
unpack(HeadRows<unit_of<Format>> units, HeadRows<scale_of<Format>> scales, int count, std::int64_t dim, Code* codes,
       std::int64_t stride, Factor* factors, Factor* offsets) {
    const std::int64_t groups = factors_in<Format>(dim);
    Factor own[std::size_t{2} * max_factors<Format>] = {}; // g++ 12 cannot see that unpacking fills it
    for (int i = 0; i < count; ++i) {
        Code* const row = codes + i * stride;
        unpack_head<Format, CELLAR_LEVELS>(units[i], scales.first == nullptr ? nullptr : scales[i], dim, row, own);
        for (std::int64_t d = dim; d < stride; ++d) row[d] = Code{};
        for (std::int64_t g = 0; g < groups; ++g) factors[g * tile_cells + i] = own[g];
        if constexpr (has_offsets<Format>)
            for (std::int64_t g = 0; g < groups; ++g) offsets[g * tile_cells + i] = own[groups + g];
    }
}

/// Factors or offsets [groups, tile_cells] as floats.
template <class Factor>
CELLAR_KERNEL void widen_factors(const Factor* from, std::int64_t groups, float* to) {
    if constexpr (requires { vectors::Vector::load(from); }) {
        for (std::int64_t i = 0; i < groups * tile_cells; i += lanes) store(to + i, load(from + i));
    } else if constexpr (requires { Factor::shift; }) { // see HalfOfE4m3
        for (std::int64_t i = 0; i < groups * tile_cells; i += lanes) {
            // Through floats, because compilers widen bytes one by one.
            const Floats bytes = load(reinterpret_cast<const std::int8_t*>(from + i));
            const vectors::Ints bits = __builtin_convertvector(bytes, vectors::Ints) & 0xff;
            const vectors::Ints magnitude = bits & 0x7f;
            const vectors::Ints of_normal = (magnitude << Factor::shift) + Factor::exponent;
            const Floats normal = reinterpret_cast<Floats>(of_normal);
            const Floats subnormal = __builtin_convertvector(magnitude, Floats) * broadcast(Factor::least);
            const Floats number = magnitude < Factor::first_normal ? subnormal : normal;
            const Floats nan = broadcast(std::numeric_limits<float>::quiet_NaN());
            store(to + i, bits == Factor::nan ? nan : number);
        }
    } else {
        for (std::int64_t i = 0; i < groups * tile_cells; ++i) to[i] = static_cast<float>(from[i]);
    }
}

template <std::size_t By, std::size_t... I>
CELLAR_INLINE vectors::Ints largest_of(vectors::Ints v, std::index_sequence<I...> all) {
    const vectors::Ints other = vectors::shuffle<((I + By) % sizeof...(I))...>(v, v);
    const vectors::Ints larger = other > v ? other : v;
    if constexpr (By == 1) {
        return larger;
    } else {
        return largest_of<By / 2>(larger, all);
    }
}

// The largest magnitude; infinity or not a number, if one of them is that.
CELLAR_INLINE float largest_magnitude(const float* from, std::int64_t n) {
    vectors::Ints largest{};
    for (std::int64_t i = 0; i < n; i += lanes) {
        const auto magnitude =
            reinterpret_cast<vectors::Ints>(load(from + i)) & 0x7fffffff; // ordered as the floats are
        largest = magnitude > largest ? magnitude : largest;
    }
    return reinterpret_cast<Floats>(largest_of<std::size_t{lanes} / 2>(largest, vectors::Lanes{}))[0];
}

// One group of a query: `wide` elements, to bytes at most half a step away. The step is not a number if an element is
// infinite or not a number.
struct RoundedGroup {
    float step;
    std::int32_t total; // of the bytes
};
CELLAR_INLINE RoundedGroup round_group(const float* from, std::int64_t wide, std::int64_t first,
                                       std::int64_t next_block, std::int8_t* row) {
    using Bytes = std::int8_t __attribute__((vector_size(std::size_t{lanes})));
    constexpr float least = 128 * std::numeric_limits<float>::min();
    const float largest = largest_magnitude(from, wide);
    const bool is_finite = largest <= std::numeric_limits<float>::max();
    const Floats per_step = broadcast(is_finite && largest >= least ? 127 / largest : 0.0F);
    Floats total{};
    for (std::int64_t d = 0; d < wide; d += lanes) {
        // Adding 1.5 * 2^23 rounds to an integer, which is then in the lower bits.
        const Floats shifted = (is_finite ? load(from + d) : Floats{}) * per_step + broadcast(12582912.0F);
        const Bytes rounded = __builtin_convertvector(reinterpret_cast<vectors::Ints>(shifted), Bytes);
        total += shifted - broadcast(12582912.0F);
        const std::int64_t at = first + d;
        std::memcpy(row + at / code_unit * next_block + at % code_unit, &rounded, sizeof(rounded));
    }
    const float step = is_finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    return {step, static_cast<std::int32_t>(vectors::sum_of<std::size_t{lanes} / 2>(total))};
}

// Row r of the queries, to blocks of code_unit bytes.
CELLAR_INLINE void round_row(const float* q, int r, std::int64_t dim, std::int64_t group, std::int64_t next_block,
                             std::int8_t* row, const ByteQueries& to) {
    const std::int64_t groups = (dim + group - 1) / group;
    for (std::int64_t g = 0; g < groups; ++g) {
        const float* const from = q + g * group;
        const std::int64_t wide = padded_dim(std::min(group, dim - g * group));
        const RoundedGroup rounded = round_group(from, wide, g * group, next_block, row);
        to.steps[r * groups + g] = rounded.step;
        to.totals[r * groups + g] = rounded.total;
        Floats sum{};
        for (std::int64_t d = 0; d < wide; d += lanes) sum += load(from + d);
        to.sums[r * groups + g] = vectors::sum_of<std::size_t{lanes} / 2>(sum);
    }
}

#ifndef CELLAR_COLUMNS

/// Queries [rows, dim], with zeros after dim up to a multiple of dim_unit. `together`: as many rows as `dot_codes`
/// multiplies together, 1, 2 or 4. `run`: see kernels_for_columns.hpp.
CELLAR_KERNEL void round_queries(const float* q, std::ptrdiff_t stride, int rows, int together, std::int64_t dim,
                                 std::int64_t group, int /*run*/, const ByteQueries& to) {
    for (int r = 0; r < rows; ++r) {
        std::int8_t* const row =
            to.bytes + std::int64_t{r / together} * together * to.stride + r % together * code_unit;
        round_row(q + r * stride, r, dim, group, together * code_unit, row, to);
    }
}

CELLAR_INLINE sums::Floats as_floats(sums::Ints sum) {
    return __builtin_convertvector(sum, sums::Floats);
}
CELLAR_INLINE sums::Floats as_floats(sums::Floats sum) {
    return sum;
}

// The sums of all lanes: scores of R queries and of neighbouring cells.
template <std::size_t R, class Sums, std::size_t... I>
CELLAR_INLINE void store_sums(const Sums* all, float* scores, std::index_sequence<I...>) {
    constexpr std::size_t cells = sizeof...(I) / R;
    sums::Floats total[sizeof...(I)] = {as_floats(all[I])...};
    sums::sum_lanes(total, std::make_index_sequence<sizeof...(I) / 2>{});
    float out[sizeof...(I)];
    sums::store(out, total[0]);
    for (std::size_t r = 0; r < R; ++r) std::memcpy(scores + r * tile_cells, out + r * cells, cells * sizeof(float));
}

// Adds the products of some queries and of one cell's codes. `weights`: of their sums, a row of tile_cells for each
// query.
template <std::size_t Cells, int Block, class Sums, std::size_t... Row>
CELLAR_INLINE void add_block(const std::int8_t* q, const std::int8_t* codes, const float* weights, Sums* all,
                             std::index_sequence<Row...>) {
    const auto keys = Products::template codes<Block>(codes);
    if constexpr (std::is_same_v<Sums, sums::Ints>) {
        ((all[Row * Cells] += Products::sums(keys, q + Row * code_unit)), ...);
    } else {
        ((all[Row * Cells] += __builtin_convertvector(Products::sums(keys, q + Row * code_unit), sums::Floats)
                              * sums::broadcast(weights[Row * tile_cells])),
         ...);
    }
}

// Scores of R queries and of as many cells as vectors of sums have lanes for. `Sums`: integers, if one factor serves
// the whole head; what they are multiplied by comes later.
template <std::size_t R, int Block, class Sums, std::size_t... Cell>
CELLAR_INLINE void dot_cells(const std::int8_t* q, const CodeTile<std::int8_t>& keys, int first, const float* weights,
                             float* scores, std::index_sequence<Cell...>) {
    constexpr std::size_t cells = sizeof...(Cell);
    constexpr std::make_index_sequence<R> rows;
    const std::int64_t blocks_of_group = keys.group / Block;
    const std::int64_t gap = keys.next_group - keys.group;
    const std::int8_t* codes[cells] = {keys.rows[first + int{Cell}]...};
    weights += first;
    Sums all[std::size_t{sums::lanes}] = {};
    std::int64_t left = blocks_of_group;
    for (std::int64_t d = 0; d < keys.dim; d += Block) {
        (add_block<cells, Block>(q, codes[Cell], weights + Cell, all + Cell, rows), ...);
        ((codes[Cell] += Block), ...);
        // Rows of queries are in blocks of code_unit.
        q += (d + Block) % code_unit == 0 ? std::int64_t{R} * code_unit + Block - code_unit : Block;
        if (std::is_same_v<Sums, sums::Ints> || --left != 0) continue;
        left = blocks_of_group;
        weights += R * tile_cells;
        ((codes[Cell] += gap), ...);
    }
    store_sums<R>(all, scores + first, sums::Lanes{});
}

template <std::size_t R, int Block, class Sums>
CELLAR_KERNEL void dot_rows(const std::int8_t* q, const CodeTile<std::int8_t>& keys, int cells, const float* weights,
                            const FetchedRows& next, float* scores) {
    constexpr int step = sums::lanes / int{R};
    LinesAhead ahead{next, (cells + step - 1) / step};
    for (int c = 0; c < cells; c += step) {
        ahead.step();
        dot_cells<R, Block, Sums>(q, keys, c, weights, scores, std::make_index_sequence<std::size_t{step}>{});
    }
}

template <std::size_t R>
CELLAR_INLINE void dot_some(const ByteQueries& q, const CodeTile<std::int8_t>& keys, int cells, float* weights,
                            const FetchedRows& next, float* scores) {
    if (keys.groups == 1) return dot_rows<R, 32, sums::Ints>(q.bytes, keys, cells, weights, next, scores);
    for (std::int64_t g = 0; g < keys.groups; ++g)
        for (std::int64_t r = 0; r < std::int64_t{R}; ++r) {
            const Floats step = broadcast(q.steps[r * keys.groups + g]);
            float* const to = weights + (g * std::int64_t{R} + r) * tile_cells;
            for (int c = 0; c < cells; c += lanes) store(to + c, load(keys.factors + g * tile_cells + c) * step);
        }
    if (keys.group % 32 == 0) return dot_rows<R, 32, sums::Floats>(q.bytes, keys, cells, weights, next, scores);
    dot_rows<R, 16, sums::Floats>(q.bytes, keys, cells, weights, next, scores);
}

// What the sums of products lack: the factor that serves all of them, and the offsets.
CELLAR_INLINE void finish_dot(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                              float* scores) {
    if (keys.groups > 1 && keys.offsets == nullptr) return;
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cells; c += lanes) {
            float* const to = scores + std::ptrdiff_t{r} * tile_cells + c;
            Floats x = load(to);
            if (keys.groups == 1) x *= load(keys.factors + c) * broadcast(q.steps[r]);
            for (std::int64_t g = 0; keys.offsets != nullptr && g < keys.groups; ++g)
                x += load(keys.offsets + g * tile_cells + c) * broadcast(q.sums[r * keys.groups + g]);
            store(to, x);
        }
}

/// scores [rows, tile_cells] = q * keys. `rows` is 1, 2 or a multiple of 4. `weights`: room for 4 rows of all groups.
/// Prefetches `next`.
CELLAR_KERNEL void dot_codes(const ByteQueries& q, int rows, const CodeTile<std::int8_t>& keys, int cells,
                             float* weights, float* scores, const FetchedRows& next) {
    if (rows == 1) dot_some<1>(q, keys, cells, weights, next, scores);
    if (rows == 2) dot_some<2>(q, keys, cells, weights, next, scores);
    for (int r = 0; rows > 2 && r < rows; r += 4)
        dot_some<4>(q.from_row(r, keys.groups), keys, cells, weights, r == 0 ? next : FetchedRows{},
                    scores + std::ptrdiff_t{r} * tile_cells);
    finish_dot(q, rows, keys, cells, scores);
}

#endif

/// Multiplies scores [rows, tile_cells] by the factors of the cells.
CELLAR_KERNEL void scale_scores(float* scores, int rows, int cells, const float* factors) {
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cells; c += lanes) {
            float* const to = scores + std::ptrdiff_t{r} * tile_cells + c;
            store(to, load(to) * load(factors + c));
        }
}

// One group: `width` values from `column` on.
template <class Code>
CELLAR_INLINE void add_floats(const float* weights, int rows, int cells, const float* factors, const Code* const* codes,
                              std::int64_t column, std::int64_t width, float* scaled, float* out, std::ptrdiff_t stride,
                              LinesAhead& ahead) {
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cells; c += lanes) {
            const std::ptrdiff_t at = std::ptrdiff_t{r} * tile_cells + c;
            store(scaled + at, load(weights + at) * load(factors + c));
        }
    for (std::int64_t d = 0; d < width;) {
        const int some = vectors::vectors_for(width - d);
        vectors::add_rows(scaled, tile_cells, rows, cells, CodeRows<Code>{codes, column + d, &ahead}, some, out + d,
                          stride);
        d += std::int64_t{some} * lanes;
    }
}

// Adds the offsets of one group, weighted, to its values.
CELLAR_INLINE void add_offsets(const float* weights, int rows, int cells, const float* offsets, std::int64_t width,
                               float* out, std::ptrdiff_t stride) {
    for (int r = 0; r < rows; ++r) {
        Floats sum{};
        for (int c = 0; c < cells; c += lanes)
            sum += load(weights + std::ptrdiff_t{r} * tile_cells + c) * load(offsets + c);
        const Floats all = broadcast(vectors::sum_of<std::size_t{lanes} / 2>(sum));
        for (std::int64_t d = 0; d < width; d += lanes) store(out + r * stride + d, load(out + r * stride + d) + all);
    }
}

/// out [rows, dim] += weights [rows, tile_cells] * values. Behind the cells, weights, factors and offsets are 0 up to a
/// multiple of 16. At most max_rows_of_values rows: 1, 2, or a multiple of 4. `scratch`: see scratch_rows.
/// Prefetches `next`.
template <class Code>
CELLAR_KERNEL void add_codes(const float* weights, int rows, int cells, const CodeTile<Code>& values, float* scratch,
                             float* out, std::ptrdiff_t stride, const FetchedRows& next) {
    const std::int64_t dim = padded_dim(values.dim);
    constexpr std::int64_t together = std::int64_t{vectors::columns} * lanes;
    LinesAhead ahead{next, (rows + 3) / 4 * std::max<std::int64_t>(1, dim * cells / together)};
    for (std::int64_t g = 0; g < values.groups; ++g) {
        const std::int64_t first = g * values.group;
        const std::int64_t width = g + 1 == values.groups ? dim - first : values.group;
        add_floats(weights, rows, cells, values.factors + g * tile_cells, values.rows, g * values.next_group, width,
                   scratch, out + first, stride, ahead);
        if (values.offsets != nullptr)
            add_offsets(weights, rows, cells, values.offsets + g * tile_cells, width, out + first, stride);
    }
}

/// The values [cells, padded_dim(dim)] as floats.
template <class Code>
CELLAR_KERNEL void widen_codes(const CodeTile<Code>& tile, int cells, float* to) {
    const std::int64_t dim = padded_dim(tile.dim);
    for (int c = 0; c < cells; ++c)
        for (std::int64_t g = 0; g < tile.groups; ++g) {
            const std::int64_t end = g + 1 == tile.groups ? dim : (g + 1) * tile.group;
            const Floats factor = broadcast(tile.factors[g * tile_cells + c]);
            const Floats offset = broadcast(tile.offsets == nullptr ? 0.0F : tile.offsets[g * tile_cells + c]);
            const Code* const codes = tile.rows[c] + g * (tile.next_group - tile.group);
            for (std::int64_t d = g * tile.group; d < end; d += lanes) {
                Floats x = load(codes + d) * factor;
                if (tile.offsets != nullptr) x += offset; // in general, a zero would lose its sign
                store(to + c * dim + d, x);
            }
        }
}

} // namespace cellar::detail::CELLAR_KERNELS

#include <cellar/attention/detail/kernels_for_columns.hpp>

#undef CELLAR_INLINE
#undef CELLAR_KERNEL

#undef CELLAR_KERNELS
#undef CELLAR_VECTORS
#undef CELLAR_SUMS
#undef CELLAR_PRODUCTS
#undef CELLAR_LEVELS
#undef CELLAR_COLUMNS
#undef CELLAR_TARGET

#endif
