// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The softmax of attention for one set of instructions. Included by kernels_for_vector.hpp, with the same macros.
// Without them the file is empty.
#ifdef CELLAR_KERNELS

#define CELLAR_SCORE_NAMESPACE CELLAR_KERNELS
#define CELLAR_SCORE_FUNCTION [[CELLAR_TARGET gnu::always_inline]] inline
#include <cellar/base/score_of.hpp>

namespace cellar::detail::CELLAR_KERNELS {

CELLAR_INLINE Floats select(Ints condition, Floats a, Floats b) {
    return condition ? a : b;
}

/// exp(x) for x <= 0, to about one unit in the last place; 0 below -87. A NaN stays one.
CELLAR_INLINE Floats exponential(Floats x) {
    const Floats clamped = select(x < broadcast(-87.0F), broadcast(-87.0F), x);
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the lower bits.
    const Floats shifted = clamped * broadcast(1.44269504F) + broadcast(12582912.0F);
    const Floats n = shifted - broadcast(12582912.0F);
    const Floats r = (clamped - n * broadcast(0.693359375F)) + n * broadcast(2.12194440e-4F); // n * ln 2, in two parts
    Floats sum = broadcast(1.0F / 5040);
    sum = sum * r + broadcast(1.0F / 720);
    sum = sum * r + broadcast(1.0F / 120);
    sum = sum * r + broadcast(1.0F / 24);
    sum = sum * r + broadcast(1.0F / 6);
    sum = sum * r + broadcast(0.5F);
    sum = sum * r + broadcast(1.0F);
    sum = sum * r + broadcast(1.0F);
    // Unsigned, because a NaN may have any lower bits.
    const Unsigned power = (reinterpret_cast<Unsigned>(shifted) << 23) + reinterpret_cast<Unsigned>(broadcast(1.0F));
    return select(x < broadcast(-87.0F), Floats{}, sum * reinterpret_cast<Floats>(power));
}

/// tanh(x): its series near 0, elsewhere by the exponential.
CELLAR_INLINE Floats tangent(Floats x) {
    const Floats positive = select(x < Floats{}, -x, x);
    const Floats e = exponential(broadcast(-2.0F) * positive);
    const Floats far = (broadcast(1.0F) - e) / (broadcast(1.0F) + e);
    const Floats x2 = x * x;
    Floats sum = broadcast(-1382.0F / 155925);
    sum = sum * x2 + broadcast(62.0F / 2835);
    sum = sum * x2 + broadcast(-17.0F / 315);
    sum = sum * x2 + broadcast(2.0F / 15);
    sum = sum * x2 + broadcast(-1.0F / 3);
    const Floats near = x + x * x2 * sum;
    return select(positive < broadcast(0.35F), near, select(x < Floats{}, -far, far));
}

template <std::size_t... I>
CELLAR_INLINE Ints bits_of(std::uint64_t word, std::index_sequence<I...>) {
    const auto bits = static_cast<std::int32_t>(word);
    const Ints all = {(static_cast<void>(I), bits)...};
    const Ints each = {static_cast<std::int32_t>(1U << I)...};
    return (all & each) != 0;
}

template <std::size_t By>
CELLAR_INLINE float largest_of(Floats v) {
    const Floats other = rotate<By>(v, Lanes{});
    v = select(other > v, other, v);
    if constexpr (By > 1) return largest_of<By / 2>(v);
    return v[0];
}
template <std::size_t By>
CELLAR_INLINE float sum_of(Floats v) {
    v += rotate<By>(v, Lanes{});
    if constexpr (By > 1) return sum_of<By / 2>(v);
    return v[0];
}

/// The arithmetic of the scores of one row and of neighbouring cells, from `cell` on, for `score_of`.
struct CellScores {
    using Number = Floats;
    const SoftmaxStep& step;
    int row;
    int cell;

    CELLAR_INLINE static Floats all(float x) { return broadcast(x); }
    CELLAR_INLINE static Floats quotient(Floats x, float by) { return x * broadcast(1.0F / by); }
    CELLAR_INLINE static Floats tanh(Floats x) { return tangent(x); }
    CELLAR_INLINE Floats distance() const {
        Ints position;
        std::memcpy(&position, step.positions + cell, sizeof(position));
        // Unsigned: those after the tile may be any numbers, whose difference overflows.
        const auto query = static_cast<std::uint32_t>(step.queries[row]);
        const Ints apart = reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(position) - query);
        const Ints before = apart >> 31; // all bits, if the cell's token comes before the query's
        return __builtin_convertvector(
            reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(apart ^ before) - reinterpret_cast<Unsigned>(before)),
            Floats);
    }
};

// Scores of one row: by the rule, and -infinity where hidden. Returns the largest.
CELLAR_INLINE float finish_scores(const SoftmaxStep& step, int row, std::uint64_t visible) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr std::uint64_t all = (std::uint64_t{1} << lanes) - 1;
    float* const scores = step.scores + std::ptrdiff_t{row} * tile_cells;
    Floats largest = broadcast(-infinity);
    for (int c = 0; c < step.cells; c += lanes) {
        Floats x = score_of(CellScores{step, row, c}, load(scores + c), step.rule, step.of_rows[row]);
        if ((visible >> c & all) != all) x = select(bits_of(visible >> c, Lanes{}), x, broadcast(-infinity));
        store(scores + c, x);
        largest = select(x > largest, x, largest);
    }
    return largest_of<std::size_t{lanes} / 2>(largest);
}

// The largest score of a row so far becomes `largest`, to which what was summed before is scaled.
CELLAR_INLINE void raise_largest(const SoftmaxStep& step, int row, float largest) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const float before = step.largest[row];
    if (largest == before) return;
    step.largest[row] = largest;
    if (before == -infinity) return;
    const Floats factor = exponential(broadcast(before) - broadcast(largest));
    step.sums[row] *= factor[0];
    float* const values = step.values + row * step.value_stride;
    for (std::int64_t d = 0; d < step.value_dim; d += lanes) store(values + d, load(values + d) * factor);
}

/// See SoftmaxStep. Two passes over the rows, because each has enough independent work for the processor, while the
/// largest score of one row has to be waited for.
CELLAR_KERNEL void softmax(const SoftmaxStep& step) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const std::uint64_t tile = ~std::uint64_t{0} >> (tile_cells - step.cells);
    const auto seen_by = [&](int row) { return step.visible == nullptr ? tile : step.visible[row] & tile; };
    for (int row = 0; row < step.rows; ++row) {
        const std::uint64_t visible = seen_by(row);
        if (visible == 0) continue;
        const float before = step.largest[row];
        const float in_tile = finish_scores(step, row, visible);
        raise_largest(step, row, in_tile > before ? in_tile : before);
    }
    const int times = step.rows * ((step.cells + lanes - 1) / lanes);
    SpreadLines<CacheLevel::second> ahead{step.fetched, times};
    for (int row = 0; row < step.rows; ++row) {
        float* const scores = step.scores + std::ptrdiff_t{row} * tile_cells;
        if (seen_by(row) == 0) {
            std::memset(scores, 0, sizeof(float) * tile_cells);
            continue;
        }
        const float largest = step.largest[row];
        const Floats base = broadcast(largest == -infinity ? 0.0F : largest);
        Floats sum = {};
        for (int c = 0; c < step.cells; c += lanes) {
            ahead.step();
            const Floats weight = exponential(load(scores + c) - base);
            store(scores + c, weight);
            sum += weight;
        }
        step.sums[row] += sum_of<std::size_t{lanes} / 2>(sum);
    }
}

} // namespace cellar::detail::CELLAR_KERNELS

#endif
