// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_convert.hpp>
#include <cellar/backend/host_runs.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/turn.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/shift.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// One turn of pairs [begin, end), along the index that is fastest in memory.
template <class Mapping, class E, class Rotation, class Factor>
void turn_pairs(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run,
                int begin, int end) {
    const kernel::Turn<Mapping, E, Rotation, Factor> turn{mapping, memory, rotation, factors, {run.first}, begin};
    if constexpr (Mapping::contiguous_cells) {
        for (std::int64_t head = 0; head < mapping.heads(); ++head)
            for (int pair = 0; pair < end - begin; ++pair)
                for (std::int64_t i = 0; i < run.count; ++i) kernel::apply(turn, i, head, pair);
    } else {
        for (std::int64_t i = 0; i < run.count; ++i)
            for (std::int64_t head = 0; head < mapping.heads(); ++head)
                for (int pair = 0; pair < end - begin; ++pair) kernel::apply(turn, i, head, pair);
    }
}

/// The same for rows that lie together. 16-bit elements go through floats, because conversions of whole rows become
/// vector code, and those of single elements on the way in and out of a pair do not.
template <class Mapping, class E, class Rotation, class Factor>
void turn_rows(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run,
               int begin, int end) {
    constexpr int longest = 1024;
    const int dim = mapping.dim();
    if (std::is_same_v<E, float> || dim > longest)
        return turn_pairs(mapping, memory, rotation, factors, run, begin, end);
    const std::int64_t heads = std::int64_t{mapping.heads()} * run.count;
    E* const first = memory + mapping(run.first, 0, 0);
    if constexpr (std::is_same_v<E, half>) {
        const bool whole = (end - begin) % HalfConversion::width == 0;
        if (HalfConversion::is_available() && whole && lie_in_two_spans(rotation, begin, end)) {
            for (E* head = first; head != first + heads * dim; head += dim)
                HalfConversion::turn(rotation, factors, head + rotation.first(begin), head + rotation.second(begin),
                                     end - begin);
            return;
        }
    }
    float floats[longest];
    const CellsHeadsDims some{longest / dim, 1, dim};
    for (std::int64_t head = 0; head < heads; head += some.cells()) {
        const auto count = static_cast<std::int32_t>(std::min(some.cells(), heads - head));
        convert(first + head * dim, floats, std::int64_t{count} * dim);
        turn_pairs(some, floats, rotation, factors, Turn{0, count, run.delta}, begin, end);
        convert(floats, first + head * dim, std::int64_t{count} * dim);
    }
}

/// The turns of cells [first_cell, last_cell) of all that are turned, the pairs in blocks whose factors fit on the
/// stack: with nothing to allocate, nothing can fail half-way. A head of 512 elements and less is one block, so that its
/// keys are swept once.
template <class Mapping, class E, class Shift>
void turn_runs(const Mapping& mapping, E* memory, const Shift& shift, int layer, std::span<const Turn> turns,
               std::int64_t first_cell = 0, std::int64_t last_cell = INT64_MAX) {
    constexpr int block = 256;
    const auto rotation = shift.rotation(layer);
    typename Shift::Factor factors[block];
    for (int begin = 0; begin < rotation.pairs(); begin += block) {
        const int end = std::min(begin + block, rotation.pairs());
        std::int32_t delta = 0; // that the factors are made for, if `made`
        bool made = false;
        visit_part(turns, first_cell, last_cell, [&](const Turn& turn) {
            if (!made || turn.delta != delta)
                for (int pair = begin; pair < end; ++pair)
                    factors[pair - begin] = shift.factor(layer, pair, turn.delta);
            made = true;
            delta = turn.delta;
            if constexpr (Mapping::contiguous_rows) {
                turn_rows(mapping, memory, rotation, factors, turn, begin, end);
            } else {
                turn_pairs(mapping, memory, rotation, factors, turn, begin, end);
            }
        });
    }
}

} // namespace cellar::detail
