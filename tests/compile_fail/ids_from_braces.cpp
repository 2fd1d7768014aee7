// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Braces alone would be a sequence as well as a position, so two of them could be swapped.
// error: explicit
#include <cellar/cellar.hpp>

bool resume(const cellar::Cache<>& cache) {
#ifdef CORRECTED
    return cache.can_resume(cellar::Sequence{0}, cellar::Position{3});
#else
    return cache.can_resume({0}, {3});
#endif
}
