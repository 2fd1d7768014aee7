// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/runs.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/rotate.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/shift.hpp>
#include <cellar/simd/convert.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// Rotates pairs [begin, end) of a run of cells. The innermost loop runs along the index that is fastest in memory.
template <class Mapping, class E, class Rotation, class Factor>
void rotate_pairs(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors,
                  const KeyRotation& run, int begin, int end) {
    const kernel::Rotate<Mapping, E, Rotation, Factor> rotate{mapping, memory, rotation, factors, {run.first}, begin};
    if constexpr (contiguous_cells<Mapping>) {
        for (std::int64_t head = 0; head < mapping.heads(); ++head)
            for (int pair = 0; pair < end - begin; ++pair)
                for (std::int64_t i = 0; i < run.count; ++i) kernel::apply(rotate, i, head, pair);
    } else {
        for (std::int64_t i = 0; i < run.count; ++i)
            for (std::int64_t head = 0; head < mapping.heads(); ++head)
                for (int pair = 0; pair < end - begin; ++pair) kernel::apply(rotate, i, head, pair);
    }
}

/// The pairs of a head that are rotated together.
inline constexpr int max_pairs = 256;

/// Pairs of adjacent heads, `dim` elements apart: pair i < n of a head has the elements first[i] and
/// second[i], or first[2 * i] and first[2 * i + 1] if they are neighbours.
template <class E>
struct PairsOfHeads {
    E* first;
    E* second;
    std::int64_t n; ///< a multiple of 8
    std::int64_t heads;
    std::int64_t dim;
};

/// Cosines and sines of n pairs. Neighbours have one for each element, and sines with the sign of their product.
template <PairPlaces Places>
struct Angles {
    static constexpr std::int64_t each = Places == PairPlaces::apart ? 1 : 2;

    float cosines[std::size_t{each * max_pairs}];
    float sines[std::size_t{each * max_pairs}];

    template <class Factor>
    Angles(const Factor* factors, std::int64_t n) {
        for (std::int64_t k = 0; k < each * n; ++k) {
            const Factor& factor = factors[k / each];
            cosines[k] = factor.cosine;
            sines[k] = each == 1 || k % 2 != 0 ? factor.sine : -factor.sine;
        }
    }
};

/// Rotates the pairs by factors[i], for n up to max_pairs. Only if simd::is_available(). The compilers' vector code for
/// `Rotation::rotate` takes up to three times as long.
template <PairPlaces Places, class E, class Factor>
CELLAR_SIMD_FUNCTION void rotate_vectors(const PairsOfHeads<E>& pairs, const Factor* factors) {
    using namespace simd::native;
    constexpr bool apart = Places == PairPlaces::apart;
    const Angles<Places> angles{factors, pairs.n};
    for (std::int64_t head = 0; head < pairs.heads; ++head) {
        for (std::int64_t i = 0; i < pairs.n; i += lanes) {
            const float* const cosines = angles.cosines + angles.each * i;
            const float* const sines = angles.sines + angles.each * i;
            E* const first = pairs.first + head * pairs.dim + angles.each * i;
            E* const second = apart ? pairs.second + head * pairs.dim + i : first + lanes;
            const Floats a = load(first);
            const Floats b = load(second);
            if constexpr (apart) {
                const Floats cosine = load(cosines);
                const Floats sine = load(sines);
                Vector::store(first, second, a * cosine - b * sine, a * sine + b * cosine);
            } else {
                Vector::store(first, second, a * load(cosines) + swap_neighbours(a, Lanes{}) * load(sines),
                              b * load(cosines + lanes) + swap_neighbours(b, Lanes{}) * load(sines + lanes));
            }
        }
    }
}

/// True for a rotation that declares `by_angle`: rotate(a, b, factor) is a rotation by the angle whose cosine and sine
/// are in the factor.
template <class Rotation>
inline constexpr bool rotates_by_angle = [] {
    if constexpr (requires { Rotation::by_angle; }) {
        return bool{Rotation::by_angle};
    } else {
        return false;
    }
}();

/// Rotates pairs [begin, end), at least one, of `heads` adjacent heads of `dim` elements. Where
/// `rotate_vectors` cannot, 16-bit elements are converted to floats row by row, because conversions of whole rows
/// compile to vector code, and conversions of single elements within a pair do not.
template <class E, class Rotation, class Factor>
void rotate_heads(E* first, std::int64_t heads, int dim, const Rotation& rotation, const Factor* factors, int begin,
                  int end) {
    constexpr int max_dim = 1024;
    if constexpr (simd::computes && rotates_by_angle<Rotation>) {
        if (simd::is_available() && (end - begin) % 8 == 0) {
            const PairsOfHeads<E> pairs{first + rotation.first(begin), first + rotation.second(begin), end - begin,
                                        heads, dim};
            const PairPlaces places = pair_places(rotation, begin, end);
            if (places == PairPlaces::apart) return rotate_vectors<PairPlaces::apart>(pairs, factors);
            if (places == PairPlaces::neighbours) return rotate_vectors<PairPlaces::neighbours>(pairs, factors);
        }
    }
    if (std::is_same_v<E, float> || dim > max_dim) {
        for (std::int64_t head = 0; head < heads; head += INT32_MAX) {
            const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(INT32_MAX, heads - head));
            rotate_pairs(CellsHeadsDims{count, 1, dim}, first + head * dim, rotation, factors, {0, count, 0}, begin,
                         end);
        }
        return;
    }
    float floats[max_dim];
    const CellsHeadsDims some{max_dim / dim, 1, dim};
    for (std::int64_t head = 0; head < heads; head += some.cells()) {
        const auto count = static_cast<std::int32_t>(std::min(some.cells(), heads - head));
        convert_run(first + head * dim, floats, std::int64_t{count} * dim);
        rotate_pairs(some, floats, rotation, factors, {0, count, 0}, begin, end);
        convert_run(floats, first + head * dim, std::int64_t{count} * dim);
    }
}

/// Rotates pairs [begin, end) of a run of cells whose heads are contiguous.
template <class Mapping, class E, class Rotation, class Factor>
void rotate_rows(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors,
                 const KeyRotation& run, int begin, int end) {
    const std::int64_t heads = mapping.heads();
    if constexpr (contiguous_rows<Mapping>) {
        rotate_heads(memory + mapping(run.first, 0, 0), heads * run.count, mapping.dim(), rotation, factors, begin,
                     end);
    } else {
        for (std::int64_t i = 0, n = 0; i < run.count; i += n) {
            n = cells_in_segment<Mapping>(run.first + i, run.count - i);
            for (std::int64_t head = 0; head < heads; ++head)
                rotate_heads(memory + mapping(run.first + i, head, 0), n, mapping.dim(), rotation, factors, begin, end);
        }
    }
}

/// Carries out the part of all rotations that belongs to cells [first_cell, last_cell), counted through the runs. Pairs
/// are done in blocks whose factors fit on the stack: nothing is allocated, so nothing can fail half-way. A head of up
/// to 512 elements is one block, and its keys are read and written once.
template <class Mapping, class E, class Shift>
void rotate_runs(const Mapping& mapping, E* memory, const Shift& shift, int layer,
                 std::span<const KeyRotation> rotations, std::int64_t first_cell = 0,
                 std::int64_t last_cell = INT64_MAX) {
    constexpr int block = max_pairs;
    const auto rotation = shift.rotation(layer);
    typename Shift::Factor factors[block];
    for (int begin = 0; begin < rotation.pairs(); begin += block) {
        const int end = std::min(begin + block, rotation.pairs());
        std::int32_t delta = 0; // of the factors, if `has_factors`
        bool has_factors = false;
        visit_part(rotations, first_cell, last_cell, [&](const KeyRotation& run) {
            if (!has_factors || run.delta != delta)
                for (int pair = begin; pair < end; ++pair) factors[pair - begin] = shift.factor(layer, pair, run.delta);
            has_factors = true;
            delta = run.delta;
            if constexpr (contiguous_heads<Mapping>) {
                rotate_rows(mapping, memory, rotation, factors, run, begin, end);
            } else {
                rotate_pairs(mapping, memory, rotation, factors, run, begin, end);
            }
        });
    }
}

} // namespace cellar::detail
