// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::kernel {

/// A kernel of (head, d) as one of a single index.
template <class Kernel>
struct EachRow {
    Kernel kernel;
    std::int64_t dim;

    CELLAR_FUNCTION void operator()(std::int64_t index) const { kernel(index / dim, index % dim); }
};

} // namespace cellar::kernel
