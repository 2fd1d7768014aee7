// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host/convert.hpp>
#include <cellar/backend/host/runs.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/rotate.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/shift.hpp>

#include <algorithm>
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

/// Rotates pairs (first[i], second[i]) by factors[i], for i < n, where n is a multiple of 8. Only if the processor has
/// the instructions.
template <class Rotation, class Factor, class Vector = VectorConversion>
CELLAR_VECTOR_FUNCTION void rotate_halves(const Rotation& rotation, const Factor* factors, half* first, half* second,
                                          std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 8) {
        float a[8];
        float b[8];
        Vector::run8(first + i, a);
        Vector::run8(second + i, b);
        for (std::int64_t k = 0; k < 8; ++k) rotation.rotate(a[k], b[k], factors[i + k]);
        Vector::run8(a, first + i);
        Vector::run8(b, second + i);
    }
}

/// Rotates pairs [begin, end) of `heads` heads of `dim` elements that follow one another. 16-bit elements are converted
/// to floats row by row, because conversions of whole rows compile to vector code, and conversions of single elements
/// within a pair do not.
template <class E, class Rotation, class Factor>
void rotate_heads(E* first, std::int64_t heads, int dim, const Rotation& rotation, const Factor* factors, int begin,
                  int end) {
    constexpr int max_dim = 1024;
    if (std::is_same_v<E, float> || dim > max_dim) {
        for (std::int64_t head = 0; head < heads; head += INT32_MAX) {
            const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(INT32_MAX, heads - head));
            rotate_pairs(CellsHeadsDims{count, 1, dim}, first + head * dim, rotation, factors, {0, count, 0}, begin,
                         end);
        }
        return;
    }
    if constexpr (VectorConversion::exists && std::is_same_v<E, half>) {
        const bool whole = (end - begin) % 8 == 0;
        if (VectorConversion::is_available() && whole && lie_in_two_spans(rotation, begin, end)) {
            for (E* head = first; head != first + heads * dim; head += dim)
                rotate_halves(rotation, factors, head + rotation.first(begin), head + rotation.second(begin),
                              end - begin);
            return;
        }
    }
    float floats[max_dim];
    const CellsHeadsDims some{max_dim / dim, 1, dim};
    for (std::int64_t head = 0; head < heads; head += some.cells()) {
        const auto count = static_cast<std::int32_t>(std::min(some.cells(), heads - head));
        convert(first + head * dim, floats, std::int64_t{count} * dim);
        rotate_pairs(some, floats, rotation, factors, {0, count, 0}, begin, end);
        convert(floats, first + head * dim, std::int64_t{count} * dim);
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
    constexpr int block = 256;
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
