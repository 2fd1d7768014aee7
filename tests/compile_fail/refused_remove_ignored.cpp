// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: nodiscard
#include <cellar/cellar.hpp>

void remove(cellar::Cache<>& cache) {
#ifdef CORRECTED
    if (!cache.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::to_end)) return;
#else
    cache.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::to_end);
#endif
}
