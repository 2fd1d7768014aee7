// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pass ends with the line, and its views with it.
// error: deleted
#include <cellar/cellar.hpp>

float first_key(cellar::Cache<>& cache, const cellar::Batch& batch) {
#ifdef CORRECTED
    auto pass = cache.begin(batch).value();
    return pass.get(0).keys(0, 0, 0);
#else
    return cache.begin(batch).value().get(0).keys(0, 0, 0);
#endif
}
