// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/plan.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Moves element (head, d) of all cells of a run. Cells go in the order in which none is overwritten before it was
/// read, so the ranges may overlap; different (head, d) are independent.
template <class Mapping, class Element>
struct Move {
    Mapping mapping;
    Element* memory;
    cellar::Move run;

    CELLAR_FUNCTION void operator()(std::int64_t head, std::int64_t d) const {
        const bool upwards = run.to < run.from;
        for (std::int64_t i = 0; i < run.count; ++i) {
            const std::int64_t cell = upwards ? i : run.count - 1 - i;
            memory[mapping(run.to + cell, head, d)] = memory[mapping(run.from + cell, head, d)];
        }
    }
};

} // namespace cellar::kernel
