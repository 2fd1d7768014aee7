// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/kernel.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Rotates pairs of key elements: computed in float, rounded once. Its indices are (i, head, pair), with pairs counted
/// from `first_pair` on.
template <class Mapping, class Element, class Rotation, class Factor, class Cells = CellRun>
struct Rotate {
    struct Value {
        Element first;
        Element second;
    };

    Mapping mapping;
    Element* memory;
    Rotation rotation;
    const Factor* factors; ///< of pairs first_pair, first_pair + 1, ...
    Cells cells;
    int first_pair = 0;

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t pair) const {
        const int p = first_pair + static_cast<int>(pair);
        float a = static_cast<float>(memory[mapping(cells(i), head, rotation.first(p))]);
        float b = static_cast<float>(memory[mapping(cells(i), head, rotation.second(p))]);
        rotation.rotate(a, b, factors[pair]);
        return {static_cast<Element>(a), static_cast<Element>(b)};
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t pair, const Value& value) const {
        const int p = first_pair + static_cast<int>(pair);
        memory[mapping(cells(i), head, rotation.first(p))] = value.first;
        memory[mapping(cells(i), head, rotation.second(p))] = value.second;
    }
};

} // namespace cellar::detail::kernel
