// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/host/rotate.hpp>
#include <cellar/backend/host/runs.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

/// Rows in formats that encode a head at a time. A head's values are on the stack: nothing is allocated.
namespace cellar::detail {

/// The units, or the scales, of a head, or of more than one if rows are contiguous.
template <class Mapping, class Buffer>
auto units_at(const Plane<Mapping, Buffer>& plane, Cell cell, std::int64_t head, std::int64_t heads = 1) {
    static_assert(contiguous_heads<Mapping>, "the units of a head are encoded together, so they must be contiguous");
    return std::span{plane.memory.data() + plane.mapping(cell, head, 0),
                     static_cast<std::size_t>(plane.mapping.dim() * heads)};
}
template <class Mapping, class Buffer>
auto read_units_at(const Plane<Mapping, Buffer>& plane, Cell cell, std::int64_t head) {
    const auto units = units_at(plane, cell, head);
    return std::span<const typename decltype(units)::value_type>{units};
}

/// Whether the heads of a row are encoded as if they were one, which is faster.
template <class F, class... Planes>
constexpr bool encodes_whole_rows() {
    return encodes_several_heads<
               F> && ((std::remove_cvref_t<decltype(Planes::mapping)>::segment == Segment::row) && ...);
}

/// Encodes row i of `rows` into cells[i], divided by `factors` [heads, dim]; null: by nothing.
template <class F, class... Planes>
void encode_rows(std::span<const Cell> cells, StridedView<const float, 3> rows, const float* factors,
                 const Planes&... planes) {
    float copied[max_encoded_dim];
    const std::int64_t dim = rows.extent(2);
    if (dim == 0) return; // without values
    if (encodes_whole_rows<F, Planes...>() && factors == nullptr && rows.stride(2) == 1 && rows.stride(1) == dim) {
        const std::int64_t heads = rows.extent(1);
        for (std::int64_t i = 0; i < std::ssize(cells); ++i)
            F::encode(std::span{&rows(i, 0, 0), static_cast<std::size_t>(heads * dim)},
                      units_at(planes, cells[static_cast<std::size_t>(i)], 0, heads)...);
        return;
    }
    for (std::int64_t i = 0; i < std::ssize(cells); ++i)
        for (std::int64_t head = 0; head < rows.extent(1); ++head) {
            const float* values = &rows(i, head, 0);
            if (rows.stride(2) != 1 || factors != nullptr) {
                for (std::int64_t d = 0; d < dim; ++d) copied[d] = rows(i, head, d);
                if (factors != nullptr)
                    for (std::int64_t d = 0; d < dim; ++d) copied[d] /= factors[head * dim + d];
                values = copied;
            }
            F::encode(std::span{values, static_cast<std::size_t>(dim)},
                      units_at(planes, cells[static_cast<std::size_t>(i)], head)...);
        }
}

/// Decodes cells[i] into row i of `rows`, multiplied by `factors` [heads, dim]; null: by nothing.
template <class F, class... Planes>
void decode_rows(std::span<const Cell> cells, StridedView<float, 3> rows, const float* factors,
                 const Planes&... planes) {
    float copied[max_encoded_dim];
    const std::int64_t dim = rows.extent(2);
    if (dim == 0) return;
    const bool in_place = rows.stride(2) == 1;
    for (std::int64_t i = 0; i < std::ssize(cells); ++i)
        for (std::int64_t head = 0; head < rows.extent(1); ++head) {
            const std::span values{in_place ? &rows(i, head, 0) : copied, static_cast<std::size_t>(dim)};
            F::decode(read_units_at(planes, cells[static_cast<std::size_t>(i)], head)..., values);
            if (factors != nullptr)
                for (std::int64_t d = 0; d < dim; ++d) values[static_cast<std::size_t>(d)] *= factors[head * dim + d];
            for (std::int64_t d = 0; !in_place && d < dim; ++d) rows(i, head, d) = copied[d];
        }
}

/// Decodes, rotates and encodes each head of cells [first_cell, last_cell), counted through the runs.
template <class F, class Shift, class Units, class... Scales>
void rotate_encoded(const Shift& shift, int layer, std::span<const KeyRotation> rotations, std::int64_t first_cell,
                    std::int64_t last_cell, const Units& units, const Scales&... scales) {
    const auto rotation = shift.rotation(layer);
    const int pairs = rotation.pairs();
    const int dim = units.mapping.dim() * F::values_per_unit;
    typename Shift::Factor factors[max_encoded_dim / 2];
    float values[max_encoded_dim];
    const std::span head_values{values, static_cast<std::size_t>(dim)};
    visit_part(rotations, first_cell, last_cell, [&](const KeyRotation& run) {
        for (int pair = 0; pair < pairs; ++pair) factors[pair] = shift.factor(layer, pair, run.delta);
        for (Cell cell = run.first; cell < run.first + run.count; ++cell)
            for (int head = 0; head < units.mapping.heads(); ++head) {
                F::decode(read_units_at(units, cell, head), read_units_at(scales, cell, head)..., head_values);
                for (int begin = 0; begin < pairs; begin += max_pairs)
                    rotate_heads(values, 1, dim, rotation, factors + begin, begin, std::min(begin + max_pairs, pairs));
                F::encode(std::span<const float>{head_values}, units_at(units, cell, head),
                          units_at(scales, cell, head)...);
            }
    });
}

} // namespace cellar::detail
