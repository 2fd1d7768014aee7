// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/kernel/move.hpp>
#include <cellar/kernel/turn.hpp>
#include <cellar/layout/mapping.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cellar::detail {

/// One move, as few calls of memmove as the mapping allows.
template <class Mapping, class E>
void move_run(const Mapping& mapping, E* memory, const Move& run) {
    const auto bytes = static_cast<std::size_t>(run.count) * sizeof(E);
    if constexpr (Mapping::contiguous_rows) {
        const auto row = static_cast<std::size_t>(mapping.heads()) * static_cast<std::size_t>(mapping.dim());
        std::memmove(memory + mapping(run.to, 0, 0), memory + mapping(run.from, 0, 0), bytes * row);
    } else {
        const kernel::Move<Mapping, E> elements{mapping, memory, run};
        for (std::int64_t head = 0; head < mapping.heads(); ++head) {
            for (std::int64_t d = 0; d < mapping.dim(); ++d) {
                if constexpr (Mapping::contiguous_cells) {
                    std::memmove(memory + mapping(run.to, head, d), memory + mapping(run.from, head, d), bytes);
                } else {
                    elements(head, d);
                }
            }
        }
    }
}

/// One turn, along the index that is fastest in memory.
template <class Mapping, class E, class Rotation, class Factor>
void turn_run(const Mapping& mapping, E* memory, const Rotation& rotation, const Factor* factors, const Turn& run) {
    const kernel::Turn<Mapping, E, Rotation, Factor> turn{mapping, memory, rotation, factors, run.first};
    if constexpr (Mapping::contiguous_cells) {
        for (std::int64_t head = 0; head < mapping.heads(); ++head)
            for (int pair = 0; pair < rotation.pairs(); ++pair)
                for (std::int64_t i = 0; i < run.count; ++i) turn(i, head, pair);
    } else {
        for (std::int64_t i = 0; i < run.count; ++i)
            for (std::int64_t head = 0; head < mapping.heads(); ++head)
                for (int pair = 0; pair < rotation.pairs(); ++pair) turn(i, head, pair);
    }
}

} // namespace cellar::detail
