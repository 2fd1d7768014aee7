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

/// The cells of a list, in memory that no kernel writes.
struct CellList {
    const Cell* cells;

    CELLAR_FUNCTION std::int64_t operator()(std::int64_t i) const {
#if defined(__CUDA_ARCH__)
        return __ldg(cells + i); // else it is read again after every write, which might have been to the list
#else
        return cells[i];
#endif
    }
};

} // namespace cellar::kernel
