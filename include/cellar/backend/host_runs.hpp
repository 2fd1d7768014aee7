// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host_rows.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/kernel/move.hpp>
#include <cellar/kernel/turn.hpp>
#include <cellar/layout/mapping.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// Cells [first, first + count) of a run.
inline Move part(const Move& run, std::int32_t first, std::int32_t count) {
    return {run.from + first, run.to + first, count};
}
inline Turn part(const Turn& run, std::int32_t first, std::int32_t count) {
    return {run.first + first, count, run.delta};
}

/// Calls `visit(run)` for those parts of the runs (of `Move` or `Turn`) that lie within [begin, end) of all their cells
/// put one behind the other. O(runs).
template <class Run, class Visit>
void visit_part(std::span<const Run> runs, std::int64_t begin, std::int64_t end, Visit visit) {
    std::int64_t first = 0;
    for (const Run& run : runs) {
        if (first >= end) return;
        const std::int64_t from = std::max(begin - first, std::int64_t{0});
        const std::int64_t to = std::min(end - first, std::int64_t{run.count});
        if (from < to) visit(part(run, static_cast<std::int32_t>(from), static_cast<std::int32_t>(to - from)));
        first += run.count;
    }
}

/// Whether a run reads cells that it writes: then these have to be moved in order.
inline bool overlaps(const Move& run) {
    return run.from < run.to + run.count && run.to < run.from + run.count;
}

template <class Run>
std::int64_t cells_of(std::span<const Run> runs) {
    std::int64_t cells = 0;
    for (const Run& run : runs) cells += run.count;
    return cells;
}

/// What `move_runs` can be divided into: memory is swept in its own order, cell after cell or strip after strip.
template <class Mapping>
std::int64_t move_parts(const Mapping& mapping, std::span<const Move> moves) {
    if constexpr (Mapping::contiguous_cells) return std::int64_t{mapping.heads()} * mapping.dim();
    return cells_of(moves);
}

/// Parts [begin, end) of all moves, in as few calls of memmove as the mapping allows.
template <class Mapping, class E>
void move_runs(const Mapping& mapping, E* memory, std::span<const Move> moves, std::int64_t begin, std::int64_t end) {
    const auto move = [&](const Move& run, std::int64_t head, std::int64_t d, std::int64_t elements) {
        std::memmove(memory + mapping(run.to, head, d), memory + mapping(run.from, head, d),
                     static_cast<std::size_t>(elements) * sizeof(E));
    };
    if constexpr (Mapping::contiguous_cells) {
        for (std::int64_t strip = begin; strip < end; ++strip)
            for (const Move& run : moves) move(run, strip / mapping.dim(), strip % mapping.dim(), run.count);
    } else if constexpr (Mapping::contiguous_rows) {
        const std::int64_t row = std::int64_t{mapping.heads()} * mapping.dim();
        if (row == 0) return; // there may be no memory
        visit_part(moves, begin, end, [&](const Move& run) { move(run, 0, 0, run.count * row); });
    } else {
        visit_part(moves, begin, end, [&](const Move& run) {
            const kernel::Move<Mapping, E> element{mapping, memory, run};
            for (std::int64_t head = 0; head < mapping.heads(); ++head)
                for (std::int64_t d = 0; d < mapping.dim(); ++d) element(head, d);
        });
    }
}

/// One turn of pairs [begin, end), along the index that is fastest in memory.
template <class Mapping, class E, class Rotation, class Factor>
void turn_pairs(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run,
                int begin, int end) {
    const kernel::Turn<Mapping, E, Rotation, Factor> turn{mapping, memory, rotation, factors, {run.first}, begin};
    if constexpr (Mapping::contiguous_cells) {
        for (std::int64_t head = 0; head < mapping.heads(); ++head)
            for (int pair = begin; pair < end; ++pair)
                for (std::int64_t i = 0; i < run.count; ++i) turn(i, head, pair);
    } else {
        for (std::int64_t i = 0; i < run.count; ++i)
            for (std::int64_t head = 0; head < mapping.heads(); ++head)
                for (int pair = begin; pair < end; ++pair) turn(i, head, pair);
    }
}

/// The same for rows that lie together: 16-bit elements go through floats, because conversions of whole rows become
/// vector code, and those of single elements on the way in and out of a pair do not.
template <class Mapping, class E, class Rotation, class Factor>
void turn_rows(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run,
               int begin, int end) {
    constexpr int longest = 1024;
    const int dim = mapping.dim();
    if (std::is_same_v<E, float> || dim > longest)
        return turn_pairs(mapping, memory, rotation, factors, run, begin, end);
    float floats[longest];
    const std::int64_t heads = std::int64_t{mapping.heads()} * run.count;
    const CellsHeadsDims some{longest / dim, 1, dim};
    E* const first = memory + mapping(run.first, 0, 0);
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
