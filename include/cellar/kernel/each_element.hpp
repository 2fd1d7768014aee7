// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::kernel {

/// A kernel of (i, head, d) as one of a single index, so that neighbouring indices, which neighbouring threads of a
/// device take, are neighbours in memory: d goes fastest, or i if `CellsFastest`.
template <class Kernel, bool CellsFastest>
struct EachElement {
    Kernel kernel;
    std::int64_t cells;
    std::int64_t heads;
    std::int64_t dim;

    CELLAR_FUNCTION std::int64_t size() const { return cells * heads * dim; }

    CELLAR_FUNCTION void operator()(std::int64_t index) const {
        if constexpr (CellsFastest) {
            const std::int64_t row = index / cells;
            kernel(index % cells, row / dim, static_cast<int>(row % dim));
        } else {
            const std::int64_t row = index / dim;
            kernel(row / heads, row % heads, static_cast<int>(index % dim));
        }
    }
};

} // namespace cellar::kernel
