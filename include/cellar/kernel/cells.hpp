// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar::kernel {

/// The cells first, first + 1, ...
struct CellRun {
    Cell first;

    CELLAR_FUNCTION std::int64_t operator()(std::int64_t i) const { return first + i; }
};

/// The cells of a list, in memory that the kernel reads.
struct CellList {
    const Cell* cells;

    CELLAR_FUNCTION std::int64_t operator()(std::int64_t i) const { return cells[i]; }
};

} // namespace cellar::kernel
