// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass that is a temporary is dropped at the end of the line.
// error: deleted
#include <cellar/cellar.hpp>

#include <vector>

void put(cellar::Cache<>& cache, const cellar::Batch& batch, const std::vector<float>& rows) {
#ifdef CORRECTED
    auto pass = cache.begin(batch);
    pass->put(0, rows, rows);
#else
    cache.begin(batch)->put(0, rows, rows);
#endif
}
