// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An ignored pass is dropped at once.
// error: nodiscard
#include <cellar/cellar.hpp>

void begin(cellar::Cache<>& cache, const cellar::Batch& batch) {
#ifdef CORRECTED
    if (auto pass = cache.begin(batch)) pass->commit();
#else
    cache.begin(batch);
#endif
}
