// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: Position
// error: Sequence
#include <cellar/cellar.hpp>

bool resume(const cellar::Cache<>& cache, cellar::Sequence s, cellar::Position p) {
#ifdef CORRECTED
    return cache.can_resume(s, p);
#else
    return cache.can_resume(p, s);
#endif
}
