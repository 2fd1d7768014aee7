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

/// One move, as few calls of memmove as the mapping allows.
template <class Mapping, class E>
void move_run(const Mapping& mapping, E* memory, const Move& run) {
    const auto n = static_cast<std::size_t>(run.count);
    if constexpr (Mapping::contiguous_rows) {
        const std::int64_t row = std::int64_t{mapping.heads()} * mapping.dim();
        if (row == 0) return; // there may be no memory
        std::memmove(memory + mapping(run.to, 0, 0), memory + mapping(run.from, 0, 0),
                     n * static_cast<std::size_t>(row) * sizeof(E));
    } else {
        const kernel::Move<Mapping, E> element{mapping, memory, run};
        for (std::int64_t head = 0; head < mapping.heads(); ++head) {
            for (std::int64_t d = 0; d < mapping.dim(); ++d) {
                if constexpr (Mapping::contiguous_cells) {
                    std::memmove(memory + mapping(run.to, head, d), memory + mapping(run.from, head, d), n * sizeof(E));
                } else {
                    element(head, d);
                }
            }
        }
    }
}

/// One turn of pairs [begin, end), along the index that is fastest in memory.
template <class Mapping, class E, class Rotation, class Factor>
void turn_pairs(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run,
                int begin, int end) {
    const kernel::Turn<Mapping, E, Rotation, Factor> turn{mapping, memory, rotation, factors, run.first, begin};
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

/// The same for heads that lie together: 16-bit elements go through floats, because conversions of whole heads become
/// vector code, and those of single elements on the way in and out of a pair do not.
template <class Mapping, class E, class Rotation, class Factor>
void turn_heads(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run,
                int begin, int end) {
    constexpr int longest = 1024;
    if (std::is_same_v<E, float> || mapping.dim() > longest)
        return turn_pairs(mapping, memory, rotation, factors, run, begin, end);
    float floats[longest];
    const CellsHeadsDims one_head{1, 1, mapping.dim()};
    for (std::int64_t i = 0; i < run.count; ++i) {
        for (std::int64_t head = 0; head < mapping.heads(); ++head) {
            E* const elements = memory + mapping(run.first + i, head, 0);
            convert(elements, floats, mapping.dim());
            turn_pairs(one_head, floats, rotation, factors, Turn{0, 1, run.delta}, begin, end);
            convert(floats, elements, mapping.dim());
        }
    }
}

/// All turns, the pairs in blocks whose factors fit on the stack: with nothing to allocate, nothing can fail half-way.
/// A head of 512 elements and less is one block, so that its keys are swept once.
template <class Mapping, class E, class Shift>
void turn_runs(const Mapping& mapping, E* memory, const Shift& shift, int layer, std::span<const Turn> turns) {
    constexpr int block = 256;
    const auto rotation = shift.rotation(layer);
    typename Shift::Factor factors[block];
    for (int begin = 0; begin < rotation.pairs(); begin += block) {
        const int end = std::min(begin + block, rotation.pairs());
        const Turn* before = nullptr; // the turn that the factors were made for
        for (const Turn& turn : turns) {
            if (before == nullptr || turn.delta != before->delta)
                for (int pair = begin; pair < end; ++pair)
                    factors[pair - begin] = shift.factor(layer, pair, turn.delta);
            before = &turn;
            if constexpr (Mapping::contiguous_rows) {
                turn_heads(mapping, memory, rotation, factors, turn, begin, end);
            } else {
                turn_pairs(mapping, memory, rotation, factors, turn, begin, end);
            }
        }
    }
}

} // namespace cellar::detail
